import sqlalchemy as sa

from legato_protos.auth.v1 import credentials_pb2 as cred
from services.auth.core.encryption import parse_encryption_key
from services.auth.sign_in.rules import totp
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from tests.services.auth.console import EMAIL, Console
from tests.services.auth.sign_in.rules.test_password_sign_in import ENCRYPTION_KEY, App, auth  # noqa: F401
from tests.support.fakes import FakeClock


def test_codes_are_those_of_the_standard() -> None:
    # RFC 6238, appendix B, shortened to six digits.
    secret = b"12345678901234567890"
    assert totp.code_at(secret, 59 // 30) == "287082"
    assert totp.code_at(secret, 1111111109 // 30) == "081804"
    assert totp.code_at(secret, 20000000000 // 30) == "353130"


async def test_the_secret_of_an_app_is_stored_encrypted_for_its_user(
    console: Console, clock: FakeClock, database: Database
) -> None:
    signed_in = await console.use_link((await console.create_user(email=EMAIL)).code)
    token = (await console.resolve(signed_in.session_token)).access_token
    started = await console.call(console.credentials.StartTotp, cred.StartTotpRequest(), token)
    app = App(clock, started.secret)
    request = cred.SetTotpRequest(challenge_id=started.challenge_id, code="000000")
    assert await console.reason(console.credentials.SetTotp, request, token) is Reason.REQUEST_INVALID
    request.code = app.code()
    await console.call(console.credentials.SetTotp, request, token)
    with database.transaction(writes=False) as connection:
        sealed = connection.execute(sa.text("SELECT secret FROM totp")).scalar_one()
    assert app._secret not in bytes(sealed)
    cipher = totp.CredentialCipher(parse_encryption_key(f"{ENCRYPTION_KEY},2:{'6d' * 32}"))
    assert cipher is not None
    assert cipher.decrypt(bytes(sealed), signed_in.user.user_id) == app._secret
    assert cipher.decrypt(bytes(sealed), "user_another") is None
    other = totp.CredentialCipher({1: b"another key, which is 32 bytes.."})
    assert other.decrypt(bytes(sealed), signed_in.user.user_id) is None

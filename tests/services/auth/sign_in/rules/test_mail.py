"""Sends mail to a real server, over a socket, with STARTTLS and a password."""

import io
import re
import ssl
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from legato_protos.auth.v1 import credentials_pb2 as cred
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.parts import Parts
from services.auth.core.peppers import Peppers
from services.auth.service import AuthService, ConsoleOptions
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.smtp import MailSender, MailServer
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import CLIENT, EMAIL, MEMBER, OPTIONS, ORIGIN, Console, by_link
from tests.support.fakes import FakeClock
from tests.support.outside.mail_box import PASSWORD, USER, MailBox, text_of

pytestmark = pytest.mark.sqlite_suffices

SENDER = "Legato <no-reply@example.ca>"
INVITED = "grace@example.ca"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("mail"))


@pytest.fixture(scope="module")
def made_box(certificate: tuple[Path, Path]) -> Iterator[MailBox]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    box = MailBox(tls)
    yield box
    box.close()


@pytest.fixture
def box(made_box: MailBox) -> MailBox:
    made_box.messages, made_box.refusals = [], 0
    return made_box


@pytest.fixture
def sender(box: MailBox, certificate: tuple[Path, Path]) -> Iterator[MailSender]:
    server = MailServer("127.0.0.1", box.port, False, SENDER, USER, PASSWORD)
    made = MailSender(server, ssl.create_default_context(cafile=str(certificate[0])))
    yield made
    made.close()


@pytest.fixture
def log_stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(log_stream: io.StringIO) -> Log:
    return Log("auth", log_stream, debug=True)


@pytest.fixture
def auth(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep, sender: MailSender
) -> AuthService:
    options = ConsoleOptions(signing_key=OPTIONS.signing_key, origins=ORIGIN, mail_sender=sender)
    return AuthService(database, peppers, clock, log, sleep, options)


def link_in(message: EmailMessage, path: str) -> str:
    found = re.search(rf"{re.escape(ORIGIN)}{path}#([0-9A-Z-]+)", text_of(message))
    assert found is not None
    return found[1]


async def ask(console: Console, auth: AuthService, email: str) -> Reason | None:
    request = cred.SendSignInLinkRequest(email=email, client=CLIENT)
    reason = await console.reason(console.methods.SendSignInLink, request)
    await auth.mail.written()
    return reason


async def test_a_link_by_mail_signs_in_once_and_leaves_an_operators_link_alone(
    console: Console, auth: AuthService, box: MailBox, log_stream: io.StringIO
) -> None:
    made = await console.create_user(email=EMAIL)
    assert await ask(console, auth, EMAIL.upper()) is None
    [message] = box.messages
    assert message["To"] == EMAIL
    code = link_in(message, "/sign-in")
    assert code in text_of(message, "html")
    assert "<img" not in text_of(message, "html")
    signed_in = await console.use_link(code)
    assert signed_in.user.user_id == made.user.user_id
    again = by_link(code)
    assert await console.reason(console.sign_in.SignIn, again) is Reason.SIGN_IN_FAILED
    await console.use_link(made.code)
    assert '"mail.sent"' in log_stream.getvalue()


async def test_an_unknown_address_gets_the_same_answer_and_no_mail(
    console: Console, auth: AuthService, box: MailBox, clock: FakeClock
) -> None:
    await console.create_user(email=EMAIL)
    assert [await ask(console, auth, address) for address in (EMAIL, "unknown@example.ca")] == [None, None]
    assert len(box.messages) == 1
    # Nor do the limits tell: three at once for each address.
    for address in (EMAIL, "unknown@example.ca"):
        reasons = [await ask(console, auth, address) for _ in range(3)]
        assert reasons == [None, None, Reason.TOO_MANY_SIGN_INS]
    clock.advance(901)
    late = by_link(link_in(box.messages[0], "/sign-in"))
    assert await console.reason(console.sign_in.SignIn, late) is Reason.SIGN_IN_FAILED


async def test_a_mailed_code_confirms_who_it_is_and_other_sessions_go_on(
    console: Console, auth: AuthService, box: MailBox, clock: FakeClock
) -> None:
    signed_in = await console.use_link((await console.create_user(email=EMAIL)).code)
    clock.advance(3600)
    token = (await console.resolve(signed_in.session_token)).access_token
    # With mail there is a proof, so that a first passkey needs it too.
    start = pb.StartPasskeyRegistrationRequest(origin=ORIGIN)
    assert await console.reason(console.user.StartPasskeyRegistration, start, token) is Reason.STEP_UP_REQUIRED
    send, request = console.credentials.SendStepUpCode, cred.SendStepUpCodeRequest(client=CLIENT)
    await console.call(send, request, token)
    await auth.mail.written()
    [message] = box.messages
    assert message["To"] == EMAIL
    found = re.search(r"Type this code there: ([0-9A-Z-]+)", text_of(message))
    assert found is not None
    assert found[1] in text_of(message, "html")
    proof = pb.StepUpRequest(
        session_token=signed_in.session_token, proof=pb.Proof(sign_in_link_code=found[1]), client=CLIENT
    )
    renewed = (await console.call(console.sign_in.StepUp, proof)).signed_in
    assert renewed.session.session_id == signed_in.session.session_id
    token = (await console.resolve(renewed.session_token)).access_token
    await console.call(console.user.StartPasskeyRegistration, start, token)
    # Three at once for an address, then one a minute.
    reasons = [await console.reason(send, request, token) for _ in range(3)]
    assert reasons == [None, None, Reason.TOO_MANY_SIGN_INS]
    await auth.mail.written()


async def test_without_an_address_no_code_is_mailed(console: Console, auth: AuthService, box: MailBox) -> None:
    signed_in = await console.use_link((await console.create_user()).code)
    token = (await console.resolve(signed_in.session_token)).access_token
    send, request = console.credentials.SendStepUpCode, cred.SendStepUpCodeRequest(client=CLIENT)
    assert await console.reason(send, request, token) is Reason.REQUEST_INVALID
    await auth.mail.written()
    assert box.messages == []


async def test_an_invitation_is_mailed_and_accepted(console: Console, auth: AuthService, box: MailBox) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    request = pb.InviteMemberRequest(account_id=account_id, email=INVITED, role=MEMBER)
    made = await console.call(console.account.InviteMember, request, token)
    await auth.mail.written()
    assert made.is_mailed
    [message] = box.messages
    assert (message["To"], message["Subject"]) == (INVITED, "Ada invites you to Acme on Legato")
    accept = pb.AcceptInvitationRequest(code=link_in(message, "/invitation"), name="Grace", client=CLIENT)
    assert (await console.call(console.sign_in.AcceptInvitation, accept)).account_id == account_id


async def test_users_are_told_of_changes_to_how_they_sign_in(console: Console, auth: AuthService, box: MailBox) -> None:
    made = await console.create_user(email=EMAIL)
    token = (await console.resolve((await console.use_link(made.code)).session_token)).access_token
    await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
    await auth.mail.written()
    assert "New recovery codes were made" in text_of(box.messages[0])


async def test_mail_is_tried_again_and_no_address_is_logged(
    database: Database,
    peppers: Peppers,
    clock: FakeClock,
    sender: MailSender,
    box: MailBox,
    log_stream: io.StringIO,
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    log = Log("auth", log_stream, debug=True)
    mail = Mail(Parts(database, peppers, clock, log), sender, ORIGIN, wait)
    box.refusals = 2
    mail.invite(INVITED, "CODE-CODE", "Acme", "Ada")
    await mail.written()
    assert len(box.messages) == 1
    assert waits == [2.0, 15.0]
    box.refusals = 99
    mail.invite(INVITED, "CODE-CODE", "Acme", "Ada")
    await mail.written()
    assert len(box.messages) == 1
    told = log_stream.getvalue()
    assert told.count("mail.failed") == 6
    assert "@" not in told
    assert "CODE-CODE" not in told


def make_certificate(folder: Path) -> tuple[Path, Path]:
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private

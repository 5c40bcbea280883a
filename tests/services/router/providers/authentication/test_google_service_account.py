"""Access tokens for service accounts of Google."""

from pathlib import Path

import msgspec
import pytest

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.google_service_account import GoogleServiceAccount
from services.router.providers.authentication.server_clock import ServerClock
from tests.support.upstreams.token_server import TokenServer


@pytest.fixture
def key_file(tokens: TokenServer, tmp_path: Path) -> Path:
    path = tmp_path / "service-account.json"
    path.write_bytes(tokens.service_account())
    return path


def change(key_file: Path, fields: dict[str, object]) -> None:
    key_file.write_bytes(msgspec.json.encode(msgspec.json.decode(key_file.read_bytes()) | fields))


async def test_key_signs_what_google_takes(key_file: Path, tokens: TokenServer) -> None:
    account = GoogleServiceAccount(key_file)
    account.check()
    assert tokens.is_valid((await account.obtain()).value)


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
async def test_wrong_clock_is_made_up_for(key_file: Path, tokens: TokenServer, ahead_s: float) -> None:
    tokens.ahead_s = ahead_s
    account = GoogleServiceAccount(key_file)
    assert tokens.is_valid((await account.obtain()).value)
    assert tokens.requests == ["POST /token"] * 2
    await account.obtain()
    assert tokens.requests == ["POST /token"] * 3


async def test_key_that_google_does_not_know_is_refused_once(key_file: Path, tokens: TokenServer) -> None:
    change(key_file, {"private_key": msgspec.json.decode(TokenServer().service_account())["private_key"]})
    with pytest.raises(CredentialsUnavailable, match="invalid_grant"):
        await GoogleServiceAccount(key_file).obtain()
    assert tokens.requests == ["POST /token"]


@pytest.mark.parametrize(
    "changed",
    [
        {"private_key": "canary"},
        {"private_key": ""},
        {"token_uri": "http://evil.vendor.com/token"},
        {"client_email": 7},
    ],
)
def test_file_that_is_no_key_is_refused_before_any_call(
    key_file: Path, tokens: TokenServer, changed: dict[str, object]
) -> None:
    change(key_file, changed)
    with pytest.raises(CredentialsUnavailable) as refusal:
        GoogleServiceAccount(key_file, clock=ServerClock()).check()
    assert "canary" not in str(refusal.value)
    assert tokens.requests == []

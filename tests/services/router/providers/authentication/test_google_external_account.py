"""Access tokens of Google by a token of another issuer."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.google_external_account import GoogleExternalAccount
from tests.support.upstreams.token_server import SUBJECT_TOKEN, TokenReply, TokenServer


def configure(folder: Path, configuration: bytes) -> GoogleExternalAccount:
    path = folder / "configuration.json"
    path.write_bytes(configuration)
    return GoogleExternalAccount(path)


@pytest.mark.parametrize("impersonates", [False, True])
async def test_token_in_a_file_is_exchanged(tokens: TokenServer, tmp_path: Path, *, impersonates: bool) -> None:
    (tmp_path / "subject").write_text(SUBJECT_TOKEN + "\n")
    account = configure(tmp_path, tokens.external_account({"file": "subject"}, impersonates=impersonates))
    account.check()
    token, lifetime_s, _ = await account.obtain()
    assert tokens.is_valid(token)
    assert ("impersonated" in token) is impersonates
    assert 3590 < lifetime_s <= 3600


async def test_token_at_an_address_is_exchanged(tokens: TokenServer, tmp_path: Path) -> None:
    tokens.replies.append(TokenReply(body=msgspec.json.encode({"value": SUBJECT_TOKEN}).decode()))
    source = {
        "url": f"{tokens.base_url}/subject",
        "headers": {"Metadata": "true"},
        "format": {"type": "json", "subject_token_field_name": "value"},
    }
    account = configure(tmp_path, tokens.external_account(source))
    assert tokens.is_valid((await account.obtain()).value)
    assert tokens.requests == ["GET /subject", "POST /v1/token"]


@pytest.mark.parametrize("said", ['{"other": "x"}', "[]", "<html>"])
async def test_subject_that_is_none_is_refused(tokens: TokenServer, tmp_path: Path, said: str) -> None:
    (tmp_path / "subject").write_text(said)
    source = {"file": "subject", "format": {"type": "json", "subject_token_field_name": "value"}}
    with pytest.raises(CredentialsUnavailable):
        await configure(tmp_path, tokens.external_account(source)).obtain()
    assert tokens.requests == []


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"environment_id": "aws1"},
        {"file": "a", "url": "https://b.test"},
        {"url": "http://evil.vendor.com"},
        {"file": 7},
    ],
)
def test_configuration_without_a_subject_is_refused(
    tokens: TokenServer, tmp_path: Path, source: dict[str, Any]
) -> None:
    with pytest.raises(CredentialsUnavailable):
        configure(tmp_path, tokens.external_account(source)).check()

"""Requests for credentials: where they go, and what is said of answers that are none."""

import pytest

from services.router.providers.authentication import token_requests
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.token_requests import ask, check_address, post_form
from tests.support.upstreams.token_server import TokenReply, TokenServer


@pytest.mark.parametrize("url", ["http://login.vendor.com/token", "ftp://login.vendor.com", "login.vendor.com", "", 7])
def test_credentials_come_from_nowhere_without_tls(url: object) -> None:
    with pytest.raises(CredentialsUnavailable):
        check_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://login.vendor.com/token",
        "http://127.0.0.1:8080",
        "http://169.254.169.254",
        "http://metadata.google.internal",
    ],
)
def test_operators_own_servers_need_no_tls(url: str) -> None:
    assert check_address(url) == url


async def test_status_and_code_are_told_and_nothing_else_that_was_said(tokens: TokenServer) -> None:
    body = '{"error": "invalid_client", "error_description": "canary"}'
    tokens.replies.append(TokenReply(401, body))
    with pytest.raises(CredentialsUnavailable) as refusal:
        await post_form(tokens.entra_url, {"a": "b"})
    assert str(refusal.value) == "127.0.0.1 answered with status 401 (invalid_client)"


@pytest.mark.parametrize("body", ["<html>canary</html>", '{"error": "canary of a Code"}', '["canary"]', "\xff" * 9])
async def test_error_that_is_no_code_is_not_told(tokens: TokenServer, body: str) -> None:
    tokens.replies.append(TokenReply(500, body))
    with pytest.raises(CredentialsUnavailable) as refusal:
        await post_form(tokens.entra_url, {})
    assert str(refusal.value) == "127.0.0.1 answered with status 500"


@pytest.mark.parametrize("body", ["<html>canary</html>", "[1]", "7", "[" * 20_000])
async def test_answer_that_is_no_object_is_none(tokens: TokenServer, body: str) -> None:
    tokens.replies.append(TokenReply(body=body))
    with pytest.raises(CredentialsUnavailable, match="no JSON object"):
        (await ask(tokens.base_url, {})).json.get("x")


async def test_endless_answer_is_none(tokens: TokenServer) -> None:
    tokens.replies.append(TokenReply(body="x" * 300_000))
    with pytest.raises(CredentialsUnavailable, match="sent an endless answer"):
        await ask(tokens.base_url, {})


async def test_server_that_does_not_answer_is_left(tokens: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_requests, "TIMEOUT_S", 0.2)
    tokens.replies.append(TokenReply(hangs=True))
    with pytest.raises(CredentialsUnavailable, match=r"127\.0\.0\.1 did not answer in time"):
        await ask(tokens.base_url, {})


async def test_server_that_is_not_there_is_named() -> None:
    with pytest.raises(CredentialsUnavailable, match=r"127\.0\.0\.1 could not be reached"):
        await ask("http://127.0.0.1:9", {})


async def test_redirect_is_not_followed(tokens: TokenServer) -> None:
    tokens.replies.append(TokenReply(302))
    with pytest.raises(CredentialsUnavailable, match="status 302"):
        await ask(tokens.base_url, {})
    assert len(tokens.requests) == 1

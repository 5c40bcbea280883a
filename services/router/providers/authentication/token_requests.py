"""Requests to the servers that hand out credentials."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import fetch_once
from services.chassis.http_client.origin import has_host, read_url
from services.chassis.http_client.own_hosts import is_own_host
from services.router.providers.authentication.credentials import CredentialsUnavailable, Headers

TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 256 * 1024
# The codes of OAuth; anything else may quote what was sent.
_CODE: Final = re.compile(r"[a-z_]{1,40}")


class TokenResponse(NamedTuple):
    """A response of status 200."""

    body: bytes
    headers: Headers

    @property
    def json(self) -> dict[str, Any]:
        try:
            decoded = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            raise CredentialsUnavailable("what was answered for credentials is no JSON object")
        return decoded


class Refused(CredentialsUnavailable):
    """The server has answered with another status than 200."""

    def __init__(self, what: str, headers: Headers) -> None:
        super().__init__(what)
        self.headers = headers


def check_address(url: object) -> str:
    """Returns an address that credentials may be asked for at: others than the operator's own need TLS."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or not has_host(url):
        raise CredentialsUnavailable("an address that credentials come from is no URL with a host")
    host = read_url(url)[0].host
    if url.startswith("http://") and not is_own_host(host):
        raise CredentialsUnavailable(f"{host} hands out credentials without TLS: its address must begin with https://")
    return url


async def ask(
    url: str, headers: Mapping[str, str], body: bytes | None = None, *, method: str = "POST"
) -> TokenResponse:
    """Asks by GET if there is no body. Raises CredentialsUnavailable."""
    origin, path = read_url(check_address(url))
    sent = {"User-Agent": "legato", "Accept": "application/json", **headers}
    try:
        response = await fetch_once(
            origin, path or "/", sent, body, method=method, timeout_s=TIMEOUT_S, most_bytes=_MOST_BYTES
        )
    except Interrupted as error:
        raise CredentialsUnavailable(f"{origin.host} {error}") from None
    if response.status != 200:
        what = f"{origin.host} answered with status {response.status}{_code_in(response.body)}"
        raise Refused(what, response.headers)
    if not response.is_whole:
        raise CredentialsUnavailable(f"{origin.host} sent an endless answer")
    return TokenResponse(response.body, response.headers)


async def post_form(url: str, form: Mapping[str, str]) -> TokenResponse:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return await ask(url, headers, urlencode(form).encode())


def host_of(url: str) -> str:
    return read_url(url)[0].host


def _code_in(body: bytes) -> str:
    try:
        error_body = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    code = error_body.get("error") if isinstance(error_body, dict) else None
    return f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""

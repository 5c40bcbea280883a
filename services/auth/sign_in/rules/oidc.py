"""Talks to the issuer of OpenID Connect: discovery, the exchange of codes, and the verification of ID tokens.

The console only passes the browser's code on, so that it can impersonate no user. A sign-in makes one or two requests.
"""

import asyncio
import base64
import hashlib
import hmac
import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from services.auth.core.outbound_http import OutboundHttp, RequestFailed
from services.chassis.errors import unavailable
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
SCOPES: Final = "openid email profile"
# For a whole request; the console waits a little longer.
TIMEOUT_S: Final = 8.0
RESPONSE_BYTES_MOST: Final = 1_000_000
CONNECTIONS_MOST: Final = 4
# How long what the issuer says of itself is used.
METADATA_VALID_US: Final = 3_600_000_000
# An unknown key may be a new one; tokens with made-up keys cause one request a minute.
KEYS_EACH_US: Final = 60_000_000
# The issuer's clock may differ this much from ours.
CLOCK_SKEW_S: Final = 60
# Only those with a public key: a token that is signed with what is public proves nothing.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
SUBJECT_LENGTH_MOST: Final = 255
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class OidcRefused(Exception):
    """Something that the browser or the issuer sent proves nothing."""


@dataclass(frozen=True, slots=True)
class OidcClient:
    """The console, as the issuer knows it."""

    issuer: str
    client_id: str
    # Empty: a public client, which PKCE alone protects.
    client_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class OidcClaims:
    subject: str = field(repr=False)
    # Empty: none that the issuer has verified.
    email: str = field(repr=False)
    name: str = field(repr=False)
    # When the user last proved who they are; None: the issuer does not say.
    authenticated_at_us: int | None


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class _IdToken(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    aud: str | list[str]
    exp: int | float
    nonce: str
    azp: str = ""
    email: Any = ""
    email_verified: Any = False
    name: Any = ""
    auth_time: int | float | None = None


def parse_oidc_client(issuer: str, client_id: str, client_secret: str) -> OidcClient | None:
    """Parses LEGATO_OIDC_ISSUER and what belongs to it; None: not set."""
    if not issuer:
        return None
    if not _is_secure(issuer):
        raise SettingsError("LEGATO_OIDC_ISSUER: must be an https address, or http on this machine")
    if not client_id:
        raise SettingsError("LEGATO_OIDC_CLIENT_ID is not set, though LEGATO_OIDC_ISSUER is")
    return OidcClient(issuer, client_id, client_secret)


def host_of(issuer: str) -> str:
    return urlsplit(issuer).hostname or ""


def challenge_of(verifier: str) -> str:
    """Returns the code challenge of a verifier (PKCE, S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


class OidcIssuer:
    def __init__(self, client: OidcClient, now_us: Callable[[], int], log: Log) -> None:
        self.client = client
        self._now_us = now_us
        self._log = log
        # The issuer is the operator's choice, and may be in their own network.
        self._http = OutboundHttp(
            connections_most=CONNECTIONS_MOST,
            timeout_s=TIMEOUT_S,
            response_bytes_most=RESPONSE_BYTES_MOST,
            allows_private=True,
        )
        self._loading = asyncio.Lock()
        self._metadata: _Metadata | None = None
        self._metadata_at_us = 0
        self._keys: KeySet | None = None
        self._keys_at_us = 0

    async def authorization_url(
        self, redirect_uri: str, state: str, nonce: str, verifier: str, *, again: bool = False
    ) -> str:
        """Returns where to send the browser. `again`: the issuer is to ask for proof even if it knows the browser."""
        metadata = await self._discover()
        parameters = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPES,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        if again:
            parameters |= {"prompt": "login", "max_age": "0"}
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(parameters)}"

    async def claims_of(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> OidcClaims:
        """Exchanges a code for an ID token and verifies it; raises OidcRefused."""
        metadata = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client.client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.client.client_secret:
            if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
                pair = f"{quote(self.client.client_id, safe='')}:{quote(self.client.client_secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form["client_secret"] = self.client.client_secret
        status, content = await self._ask(metadata.token_endpoint, headers, urlencode(form).encode())
        if status >= 500:
            raise unavailable("The sign-in provider")
        if status != http.HTTPStatus.OK:
            raise OidcRefused
        try:
            id_token = msgspec.json.decode(content, type=_Tokens).id_token
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OidcRefused from error
        return await self._verify(id_token, nonce)

    async def _verify(self, id_token: str, nonce: str) -> OidcClaims:
        from joserfc.errors import JoseError

        try:
            token = msgspec.convert(await self._signed_claims(id_token), _IdToken)
        except (JoseError, ValueError, TypeError) as error:
            raise OidcRefused from error
        audience = [token.aud] if isinstance(token.aud, str) else token.aud
        client_id, now_s = self.client.client_id, self._now_us() / 1e6
        is_for_us = client_id in audience and (token.azp == client_id if token.azp or len(audience) > 1 else True)
        is_right = (
            token.iss == self.client.issuer
            and is_for_us
            and now_s < token.exp + CLOCK_SKEW_S
            and hmac.compare_digest(token.nonce.encode(), nonce.encode())
            and 0 < len(token.sub) <= SUBJECT_LENGTH_MOST
        )
        if not is_right:
            raise OidcRefused
        # Some issuers write booleans as text.
        is_verified = token.email_verified is True or token.email_verified == "true"
        return OidcClaims(
            subject=token.sub,
            email=token.email.strip().lower() if is_verified and isinstance(token.email, str) else "",
            name=token.name if isinstance(token.name, str) else "",
            authenticated_at_us=None if token.auth_time is None else int(token.auth_time * 1e6),
        )

    async def _signed_claims(self, id_token: str) -> Mapping[str, object]:
        """Returns the claims of a token that one of the issuer's keys has signed. The first unknown key may be new."""
        from joserfc import jwt
        from joserfc.errors import BadSignatureError, InvalidKeyIdError

        keys = await self._load_keys()
        try:
            return jwt.decode(id_token, keys, algorithms=ALGORITHMS).claims
        except (InvalidKeyIdError, BadSignatureError):
            newer = await self._load_keys(than=keys)
            if newer is keys:
                raise
            return jwt.decode(id_token, newer, algorithms=ALGORITHMS).claims

    async def _load_keys(self, than: "KeySet | None" = None) -> "KeySet":
        """Returns the issuer's keys: those at hand, or newer ones `than` these if they are not too new themselves."""
        from joserfc.jwk import KeySet

        metadata = await self._discover()
        async with self._loading:
            if self._keys is not None:
                is_fresh = self._now_us() - self._keys_at_us < (
                    KEYS_EACH_US if self._keys is than else METADATA_VALID_US
                )
                if is_fresh or (than is not None and self._keys is not than):
                    return self._keys
            self._keys_at_us = self._now_us()
            content = await self._get(metadata.jwks_uri)
            try:
                given = msgspec.json.decode(content, type=dict[str, list[dict[str, Any]]])["keys"]
                usable = [key for key in given if key.get("use", "sig") == "sig" and key.get("kty") != "oct"]
                self._keys = KeySet.import_key_set({"keys": usable})
            except Exception as error:
                self._log.failure("oidc.keys_not_readable", error)
                raise unavailable("The sign-in provider") from None
            return self._keys

    async def _discover(self) -> _Metadata:
        async with self._loading:
            if self._metadata is not None and self._now_us() - self._metadata_at_us < METADATA_VALID_US:
                return self._metadata
            content = await self._get(self.client.issuer.rstrip("/") + DISCOVERY_PATH)
            try:
                metadata = msgspec.json.decode(content, type=_Metadata)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._log.failure("oidc.metadata_not_readable", error)
                raise unavailable("The sign-in provider") from None
            endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri)
            if metadata.issuer != self.client.issuer or not all(map(_is_secure, endpoints)):
                self._log.warning("oidc.metadata_refused")
                raise unavailable("The sign-in provider")
            self._metadata, self._metadata_at_us = metadata, self._now_us()
            return metadata

    async def _get(self, url: str) -> bytes:
        status, content = await self._ask(url, {})
        if status != http.HTTPStatus.OK:
            self._log.warning("oidc.refused", http_status=status)
            raise unavailable("The sign-in provider")
        return content

    async def _ask(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        try:
            return await self._http.request(url, {"Accept": "application/json", **headers}, body)
        except RequestFailed as error:
            self._log.warning("oidc.unreachable", error=error.failure.value)
            raise unavailable("The sign-in provider") from None


def _is_secure(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )

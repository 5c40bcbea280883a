"""Authenticates requests by an access token that is renewed."""

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.chassis.http_client.origin import Origin
from services.router.providers.authentication.credentials import (
    Authentication,
    Credentials,
    CredentialsUnavailable,
    Headers,
)
from services.router.providers.authentication.renewal import Expiring, Renewal

_UNAUTHORIZED: Final = 401
_LONGEST_TOKEN_CHARACTERS: Final = 32 * 1024
# Of a token without one.
_SHORT_LIFETIME_S: Final = 300.0
_LONGEST_LIFETIME_S: Final = 30 * 24 * 3600.0


class BearerAuthentication(Authentication):
    def __init__(
        self, obtain: Callable[[], Awaitable[Expiring[str]]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._renewal = Renewal(obtain, now)

    @property
    def generation(self) -> int:
        return self._renewal.generation

    @property
    def failure(self) -> str:
        return self._renewal.failure

    async def ready(self) -> None:
        await self._renewal.ready()

    def headers(self, path: str, body: bytes) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._renewal.current}"}

    async def renew(self, generation: int, status: int, headers: Headers) -> bool:
        return status == _UNAUTHORIZED and await self._renewal.renew(generation)

    async def aclose(self) -> None:
        await self._renewal.aclose()


@dataclass(frozen=True, slots=True)
class TokenCredentials(Credentials):
    """Credentials whose access tokens a method obtains that needs nothing else."""

    @abstractmethod
    async def obtain(self) -> Expiring[str]:
        """Raises CredentialsUnavailable."""

    def open(self, origin: Origin) -> Authentication:
        return BearerAuthentication(self.obtain)


def read_token(fields: Mapping[str, Any]) -> Expiring[str]:
    """Reads the answer of a token endpoint of OAuth 2.0."""
    kind = fields.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise CredentialsUnavailable("the token that was handed out is no bearer token")
    return Expiring(check_token(fields.get("access_token")), _lifetime_s(fields.get("expires_in")))


def check_token(token: object) -> str:
    is_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if not is_text or not 0 < len(str(token)) <= _LONGEST_TOKEN_CHARACTERS or " " in str(token):
        raise CredentialsUnavailable("no access token was handed out")
    return str(token)


def _lifetime_s(expires_in: object) -> float:
    try:
        lifetime_s = _SHORT_LIFETIME_S if expires_in is None else float(str(expires_in))
    except ValueError:
        lifetime_s = 0.0
    if not lifetime_s > 0:
        raise CredentialsUnavailable("the access token that was handed out has expired")
    return min(lifetime_s, _LONGEST_LIFETIME_S)


def lifetime_until(end: object, now_s: float) -> float:
    """Returns the seconds until `end`, a time in ISO's format."""
    try:
        until_s = datetime.fromisoformat(str(end)).timestamp()
    except ValueError:
        raise CredentialsUnavailable("the credentials that were handed out have no end") from None
    return _lifetime_s(until_s - now_s)

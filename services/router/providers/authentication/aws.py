"""Signs requests to Amazon's servers with keys that may expire."""

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.chassis.http_client.origin import Origin, quote_path
from services.router.providers.authentication.bearer import lifetime_until
from services.router.providers.authentication.credentials import (
    Authentication,
    Credentials,
    CredentialsUnavailable,
    Headers,
)
from services.router.providers.authentication.renewal import Expiring, Renewal
from services.router.providers.authentication.server_clock import ServerClock
from services.router.providers.authentication.sigv4 import AwsKeys, SigningScope, sign

_REFUSED: Final = (401, 403)
# What of a refusal other keys, or another time, may help against.
_ERROR_HEADER: Final = b"x-amzn-errortype"
_WRONG_KEYS: Final = ("ExpiredToken", "UnrecognizedClient", "InvalidClientTokenId", "IncompleteSignature")
_WRONG_TIME: Final = ("InvalidSignature", "SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed")
# All requests have this one.
_CONTENT_TYPE: Final = {"content-type": "application/json"}


class SignedRequests(Authentication):
    def __init__(
        self,
        obtain: Callable[[], Awaitable[Expiring[AwsKeys]]],
        scope: SigningScope,
        origin: Origin,
        now: Callable[[], float] = time.monotonic,
        clock: ServerClock | None = None,
    ) -> None:
        self._renewal = Renewal(obtain, now)
        self._scope = scope
        self._signed = _CONTENT_TYPE | {"host": origin.name}
        self._clock = clock or ServerClock()

    @property
    def generation(self) -> int:
        return self._renewal.generation

    @property
    def failure(self) -> str:
        return self._renewal.failure

    async def ready(self) -> None:
        await self._renewal.ready()

    def headers(self, path: str, body: bytes) -> Mapping[str, str]:
        sent = quote_path(path).decode()
        return sign(self._renewal.current, self._scope, self._clock.now_s(), self._signed, sent, body)

    async def renew(self, generation: int, status: int, headers: Headers) -> bool:
        if status not in _REFUSED:
            return False
        error = dict(headers).get(_ERROR_HEADER, b"").decode("latin-1")
        if error.startswith(_WRONG_TIME) and self._clock.learn(headers):
            return True
        return error.startswith(_WRONG_KEYS) and await self._renewal.renew(generation)

    async def aclose(self) -> None:
        await self._renewal.aclose()


@dataclass(frozen=True, slots=True)
class AwsCredentials(Credentials):
    scope: SigningScope

    @abstractmethod
    async def obtain(self) -> Expiring[AwsKeys]:
        """Raises CredentialsUnavailable."""

    def open(self, origin: Origin) -> Authentication:
        return SignedRequests(self.obtain, self.scope, origin)


def read_keys(fields: Mapping[str, Any], headers: Headers, token: str = "Token") -> Expiring[AwsKeys]:  # noqa: S107
    """Reads keys that expire from what one of Amazon's servers answered."""
    names = ("AccessKeyId", "SecretAccessKey", token)
    if not all(isinstance(fields.get(name), str) and fields[name] for name in names):
        raise CredentialsUnavailable("no keys were handed out")
    clock = ServerClock()
    clock.learn(headers)
    return Expiring(AwsKeys(*(fields[name] for name in names)), lifetime_until(fields.get("Expiration"), clock.now_s()))

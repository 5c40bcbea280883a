"""Idempotency-Key: a key that a client gives its request, so that a retry of it is not served again.

Neither the key nor the body may be stored. Metering gets HMAC digests of both, under a secret of the account that it
does not know, so its tables cannot be used to test guesses.
"""

import asyncio
import hmac
import re
from collections.abc import Iterable
from typing import Final

from edge.backends.auth import Principal
from protos.metering.v1.metering_pb2 import IdempotencyClaim
from services.chassis.errors import LegatoError, Reason, unavailable

_HEADER: Final = "Idempotency-Key"
_FIELD: Final = _HEADER.lower().encode()
LONGEST_KEY: Final = 255
# A digest of more than this takes a good part of a millisecond, so it runs in a thread; it releases the GIL.
_DIGEST_AT_ONCE_BYTES: Final = 256 * 1024
_PRINTABLE: Final = re.compile(rb"[ -~]{1,%d}" % LONGEST_KEY)


async def claim_in(
    headers: Iterable[tuple[bytes, bytes]], body: bytes, principal: Principal
) -> IdempotencyClaim | None:
    """Returns the request's claim to its idempotency key, or None if it has none."""
    given = [value for name, value in headers if name == _FIELD]
    if not given:
        return None
    if len(given) > 1 or not _PRINTABLE.fullmatch(given[0]):
        message = f"{_HEADER} must be given once, and have 1 to {LONGEST_KEY} printable ASCII characters."
        raise LegatoError(Reason.REQUEST_INVALID, message, param=_HEADER)
    if not principal.digest_key:
        # The auth service predates digest keys. A digest without a key could be guessed.
        raise unavailable("Authentication")
    return IdempotencyClaim(
        key_digest=_digest(principal.digest_key, given[0]), body_digest=await _body_digest(principal.digest_key, body)
    )


async def _body_digest(key: bytes, body: bytes) -> bytes:
    if len(body) <= _DIGEST_AT_ONCE_BYTES:
        return _digest(key, body)
    return await asyncio.to_thread(_digest, key, body)


def _digest(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")

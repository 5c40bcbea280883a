"""Idempotency-Key: a key that a client gives its request, so that a retry of it is not served again.

Neither the key nor the body may be stored. Metering gets HMAC digests of both, under a secret of the account that it
does not know, so its tables cannot be used to test guesses.
"""

import asyncio
import hmac
import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from edge.backends.auth import Principal
from legato_protos.metering.v1.metering_pb2 import IdempotencyClaim
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.sentence import Sentence

_HEADER: Final = "Idempotency-Key"
_FIELD: Final = _HEADER.lower().encode()
LONGEST_KEY: Final = 255
# A digest of more than this takes a good part of a millisecond, so it runs in a thread.
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
        sentence = Sentence("idempotency_key_invalid", header=_HEADER, most=LONGEST_KEY)
        raise LegatoError(Reason.REQUEST_INVALID, sentence, param=_HEADER)
    if not principal.digest_key:
        # The auth service predates digest keys. A digest without a key could be guessed.
        raise unavailable("Authentication")
    digest = partial(hmac.digest, principal.digest_key, digest="sha256")
    # The digest of a long body releases the GIL.
    body_digest = digest(body) if len(body) <= _DIGEST_AT_ONCE_BYTES else await asyncio.to_thread(digest, body)
    return IdempotencyClaim(key_digest=digest(given[0]), body_digest=body_digest)

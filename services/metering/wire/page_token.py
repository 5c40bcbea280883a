"""Page tokens: some integers, encoded so that they are not mistaken for something to compute with."""

import base64
import binascii

from services.chassis.errors import LegatoError
from services.metering.wire.operations import invalid


def to_token(*numbers: int) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, numbers)).encode()).decode()


def from_token(token: str, count: int) -> list[int]:
    """Decodes a token of so many numbers. Only the exact encoding that we produce is accepted."""
    try:
        numbers = [int(word) for word in base64.b64decode(token, altchars=b"-_", validate=True).decode().split(" ")]
    except (binascii.Error, ValueError):
        raise _bad_token() from None
    if len(numbers) != count or to_token(*numbers) != token or max(map(abs, numbers)) >= 2**63:
        raise _bad_token()
    return numbers


def _bad_token() -> LegatoError:
    return invalid("The page token must be the one that the previous page returned.", "page_token")

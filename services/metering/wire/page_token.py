"""Page tokens: some integers, encoded so that they are not mistaken for something to compute with."""

import base64
import binascii
import contextlib

from services.metering.wire.operations import invalid


def to_token(*numbers: int) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, numbers)).encode()).decode()


def from_token(token: str, count: int) -> list[int]:
    """Decodes a token of so many numbers. Only the exact encoding that we produce is accepted."""
    numbers: list[int] = []
    with contextlib.suppress(binascii.Error, ValueError):
        numbers = [int(word) for word in base64.b64decode(token, altchars=b"-_", validate=True).decode().split(" ")]
    if len(numbers) != count or to_token(*numbers) != token or max(map(abs, numbers)) >= 2**63:
        raise invalid("The page token must be the one that the previous page returned.", "page_token")
    return numbers

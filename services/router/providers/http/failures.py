"""Why a connection fails, and the limits on what a server may send around its answer."""

from services.router.providers.base import ProviderError

# Limit on the response head, interim responses included.
LARGEST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 256
# Limits on framing after the head (chunk sizes, extensions, trailers): bytes without any body in between, and in total
# per byte of the body, as if every chunk had one byte and a long size.
LARGEST_FRAMING_BYTES = 2 * LARGEST_HEAD_BYTES
MOST_FRAMING_PER_BODY_BYTE = 16


class Interrupted(ProviderError):
    """The connection failed, rather than the answer."""


class ConnectionRefused(Interrupted):
    """The address refuses connections: the server is down, or its accept queue is full."""


class Refused(Exception):
    """Raised in a parser callback to stop parsing."""


def check_framing(read_bytes: int, body_bytes: int, bytes_without_body: int) -> None:
    """Raises `Refused` if there is too much around the body."""
    most_bytes = LARGEST_FRAMING_BYTES + MOST_FRAMING_PER_BODY_BYTE * body_bytes
    if bytes_without_body > LARGEST_FRAMING_BYTES or read_bytes - body_bytes > most_bytes:
        raise Refused("sent too much around its answer")

"""Reads the body of a request, within limits of size and memory."""

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, HttpScope, Receive
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.sentence import Sentence

# A million tokens as JSON; the token limit decides the rest.
LARGEST_BODY_BYTES = 16 * 1024 * 1024


class ClientGone(Exception):
    """The client has disconnected, and gets no answer."""


async def read_body(scope: HttpScope, receive: Receive, memory: BudgetShare) -> bytes:
    """Returns the body. What has arrived of it is held in `memory`, which the caller releases."""
    _check_headers(scope, memory)
    if BODY in scope:
        body: bytes = scope.pop(BODY)
        check_size(len(body))
        memory.grow_to(len(body))
        return body
    received = bytearray()
    while (message := await receive())["type"] == "http.request":
        received += message["body"]
        check_size(len(received))
        memory.grow_to(len(received))
        if not message.get("more_body", False):
            return bytes(received)
    raise ClientGone


def announced_bytes(scope: HttpScope) -> int | None:
    """Returns the length of the body that arrived with its headers, or its content-length; None for a chunked body."""
    if BODY in scope:
        return len(scope[BODY])
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def _check_headers(scope: HttpScope, memory: BudgetShare) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            check_size(int(value))
            # Only what arrives is held, but what cannot be held need not arrive.
            memory.check(int(value))
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise LegatoError(Reason.ENCODING_NOT_SUPPORTED, Sentence("body_encoded"))


def check_size(size_bytes: int) -> None:
    if size_bytes > LARGEST_BODY_BYTES:
        sentence = Sentence("body_too_large", most_mb=LARGEST_BODY_BYTES // (1024 * 1024))
        raise LegatoError(Reason.BODY_TOO_LARGE, sentence)

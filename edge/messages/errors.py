"""Renders errors in Anthropic's shape. Within it are all fields of the error table."""

from collections.abc import Mapping
from typing import Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Headers, HttpScope

MESSAGES_PATH: Final = "/v1/messages"
# With Anthropic's version these are answered in its shape, too.
MODELS_PATH: Final = "/v1/models"
VERSION_HEADER: Final = b"anthropic-version"

# Of statuses that have a type of their own; of all others it is that of the error table.
_TYPES: Final[Mapping[int, str]] = {402: "billing_error", 404: "not_found_error", 413: "request_too_large"}
# Clients look for it to know that they must shorten the conversation, and by how much.
_TOO_LONG: Final = "prompt is too long: "
_TOO_LONG_BY: Final = _TOO_LONG + "%d tokens > %d maximum"


def is_for_messages(scope: HttpScope) -> bool:
    """Returns whether a request is to be answered in Anthropic's shape."""
    path: str = scope["path"]
    if path.startswith(MESSAGES_PATH):
        return path[len(MESSAGES_PATH) :][:1] in ("", "/")
    return path.startswith(MODELS_PATH) and any(name == VERSION_HEADER for name, _ in scope["headers"])


def error_object(error: LegatoError, request_id: str) -> dict[str, object]:
    wire, message = error.wire, error.message
    if error.reason is Reason.CONTEXT_EXCEEDED:
        message = _too_long(error)
    told = {
        "type": _TYPES.get(wire.http_status, wire.type),
        "message": message,
        "param": error.param,
        "code": wire.code,
    }
    return {"type": "error", "error": told, "request_id": request_id}


def _too_long(error: LegatoError) -> str:
    """Returns the words of Anthropic's. A model that has refused a prompt counts at least one token too many."""
    figures = error.sentence.figures
    if "most" not in figures:
        return _TOO_LONG + error.message
    most_tokens = int(figures["most"])
    return _TOO_LONG_BY % (max(int(figures.get("count", 0)), most_tokens + 1), most_tokens)


def render_error(error: LegatoError, request_id: str) -> tuple[bytes, Headers]:
    """Returns the body of the response, and its further headers."""
    headers = request_id_header(request_id)
    if error.reason is Reason.KEY_INVALID:
        # Claude Code would repeat it for minutes.
        headers.append((b"x-should-retry", b"false"))
    return msgspec.json.encode(error_object(error, request_id)), headers


def request_id_header(request_id: str) -> Headers:
    """Returns Anthropic's name for the header of the request's id, which its clients read."""
    return [(b"request-id", request_id.encode())]

"""The finish reason of an answer that met one of its request's stops, from providers that tell which."""

from typing import Final

import msgspec
from msgspec import Raw

_QUOTE: Final = ord('"')


class MatchedStop(str):
    """Equals the ordinary reason, `stop`."""

    sequence: str

    def __new__(cls, sequence: str) -> "MatchedStop":
        reason = super().__new__(cls, "stop")
        reason.sequence = sequence
        return reason


def finish_reason_of(told: str, *matched: Raw) -> str:
    """Returns the finish reason that a server of OpenAI's wire told. `matched` are its own fields beside it: the text
    that was met, or the number of a token."""
    if told == "stop":
        for each in matched:
            if each and memoryview(each)[0] == _QUOTE:
                return MatchedStop(msgspec.json.decode(each, type=str))
    return told


def stop_sequence_of(finish_reason: str | None) -> str:
    """Returns the stop that was met; empty if none is known."""
    return finish_reason.sequence if isinstance(finish_reason, MatchedStop) else ""

"""Reads Anthropic's answers strictly: by the types of its own client, without any field that these do not have.

The client is imported where an answer is read: that takes seconds, which only the processes that run these tests should
pay.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from tests.support.unknown_fields import unknown_fields

if TYPE_CHECKING:
    from anthropic.types.beta import BetaMessage

# What cut an answer off.
OURS = {"BetaUsage.x-legato-end", "BetaMessageDeltaUsage.x-legato-end"}


def split_events(stream: bytes) -> list[tuple[str, Any]]:
    """Returns the name and the data of each event."""
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    found = []
    for event in events:
        kind, data = event.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def read_events(stream: bytes) -> list[Any]:
    """Returns the events that the client's types know. Pings have none; they are told by their name."""
    read: list[Any] = []
    for kind, data in split_events(stream):
        assert data["type"] == kind
        if kind == "ping":
            assert data == {"type": "ping"}
            continue
        event = _events().validate_python(data, strict=True)
        assert set(unknown_fields(event)) - OURS == set(), data
        read.append(event)
    return read


def read_message(body: bytes) -> BetaMessage:
    from anthropic.types.beta import BetaMessage

    message = BetaMessage.model_validate_json(body, strict=True)
    assert set(unknown_fields(message)) - OURS == set()
    return message


def kinds_of(stream: bytes) -> list[str]:
    return [kind for kind, _ in split_events(stream)]


@cache
def _events() -> TypeAdapter[Any]:
    from anthropic.types.beta import BetaRawMessageStreamEvent

    return TypeAdapter(BetaRawMessageStreamEvent)

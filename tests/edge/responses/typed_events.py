"""Events of a response, each validated strictly by OpenAI's published types."""

import json
from functools import cache
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.unknown_fields import unknown_fields

# Codes that OpenAI sends and agents act on, though its types do not list them.
_UNLISTED_CODES = ("context_length_exceeded", "insufficient_quota", "invalid_api_key")

# OpenAI sends these, though its types do not list them; the last is ours.
_UNLISTED_FIELDS = {
    "ResponseErrorEvent.error",
    "Response.store",
    "Response.frequency_penalty",
    "Response.presence_penalty",
    "ResponseCustomToolCall.status",
    "ResponseUsage.x-legato-end",
}


def read_events(stream: bytes) -> list[dict[str, Any]]:
    """Returns the data of all events, comments left out. Their names are their types, and they are numbered."""
    events = []
    for block in stream.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        check_type(_events(), event)
        if "response" in event:
            check_response(event["response"])
    return events


def check_response(response: dict[str, Any]) -> None:
    check_type(_responses(), response)
    assert response["store"] is False


# Made once: that takes longer than all that is read with them.
@cache
def _events() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


@cache
def _responses() -> TypeAdapter[Any]:
    return TypeAdapter(Response)


def check_type(types: TypeAdapter[Any], given: dict[str, Any]) -> None:
    failure = (given.get("response") or given).get("error")
    if failure and failure["code"] in _UNLISTED_CODES:
        given = json.loads(json.dumps(given).replace(f'"{failure["code"]}"', '"server_error"'))
    read = types.validate_python(given, strict=True)
    assert set(unknown_fields(read)) - _UNLISTED_FIELDS == set()


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]

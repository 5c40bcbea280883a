"""Requests for responses, as the chats that they become."""

import asyncio
import json
from typing import Any, NamedTuple

import msgspec
import pytest

from edge.responses.request import convert_request
from edge.responses.response_items import ReasoningForm
from edge.responses.tools import OfferedTools
from edge.wire.chat_request import ChatBody, decode_chat
from services.chassis.errors import LegatoError, Reason

FORECAST: dict[str, Any] = {
    "type": "function",
    "name": "forecast",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "strict": True,
}
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: line+"},
}
AGENTS: dict[str, Any] = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [{"type": "function", "name": "spawn"}, {"type": "custom", "name": "ask", "description": "Asks one."}],
}


class Converted(NamedTuple):
    # The chat, as JSON and as the edge reads it.
    chat: dict[str, Any]
    body: ChatBody
    ignored: tuple[str, ...]
    settings: dict[str, Any]
    tools: OfferedTools
    reasoning: ReasoningForm


def convert(body: bytes | None = None, /, *, may_search: bool = False, **fields: Any) -> Converted:
    """Converts a request; one without `input` asks something."""
    given = json.dumps({"input": "Hi", **fields}).encode() if body is None else body

    async def both() -> Converted:
        request = await convert_request(given, may_search=may_search)
        chat = json.loads(request.chat_json)
        settings = json.loads(msgspec.json.encode(request.settings))
        body = await decode_chat(request.chat_json)
        return Converted(chat, body, request.ignored, settings, request.tools, request.reasoning)

    return asyncio.run(both())


def messages(*items: Any, **fields: Any) -> list[Any]:
    found: list[Any] = convert(input=list(items), **fields).chat["messages"]
    return found


def refusal(body: bytes | None = None, /, **fields: Any) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        convert(body, **fields)
    assert refused.value.reason is Reason.REQUEST_INVALID
    return refused.value

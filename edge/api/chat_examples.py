"""Examples of chats, in the OpenAPI document. The answers are rendered as those of models are."""

from typing import Any, Final

import msgspec

from edge.api.description import REQUEST_ID
from edge.wire.completion_json import Chunks, Completion
from legato_protos.router.v1.router_pb2 import ChatResponse, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage

CHAT: Final = {
    "model": "mezzo",
    "messages": [{"role": "user", "content": "Will it rain?"}],
}
STREAMED_CHAT: Final = {
    "model": "forte",
    "stream": True,
    "max_tokens": 200,
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is a fugue?"},
    ],
}
CHAT_WITH_TOOLS: Final = {
    "model": "fortissimo",
    "messages": [{"role": "user", "content": "Will it rain in Bern?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "forecast",
                "description": "The weather of a place.",
                "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
            },
        }
    ],
    "tool_choice": "auto",
}

_CREATED_S: Final = 1763294400
_USAGE: Final = Usage(prompt_tokens=11, completion_tokens=7)


def _completion(class_id: str, response: ChatResponse, finish_reason: str) -> Any:
    completion = Completion(f"chatcmpl-{REQUEST_ID}", _CREATED_S, class_id)
    completion.add(response)
    return msgspec.json.decode(completion.render(finish_reason, _USAGE))


def _events(class_id: str, response: ChatResponse) -> list[str]:
    """Returns the data of each event of a stream."""
    chunks = Chunks(f"chatcmpl-{REQUEST_ID}", _CREATED_S, class_id)
    stream = chunks.opening(None) + chunks.deltas(response) + chunks.closing("stop", _USAGE)
    return [event.removeprefix("data: ") for event in stream.decode().split("\n\n") if event]


COMPLETION: Final = _completion("mezzo", ChatResponse(contents=["Not before the evening."]), "stop")
_CALL: Final = ToolCallDelta(id="call_1", name="forecast", arguments='{"place":"Bern"}')
COMPLETION_WITH_TOOL_CALL: Final = _completion("fortissimo", ChatResponse(tool_calls=[_CALL]), "tool_calls")
*CHUNKS, DONE = _events("forte", ChatResponse(contents=["A chase."]))

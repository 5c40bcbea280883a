"""Examples of chats, in the OpenAPI document."""

from typing import Any, Final

from edge.api.description import REQUEST_ID

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

_USAGE: Final = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 0},
}
_COMPLETION: Final = {
    "id": f"chatcmpl-{REQUEST_ID}",
    "object": "chat.completion",
    "created": 1763294400,
}
COMPLETION: Final = {
    **_COMPLETION,
    "model": "mezzo",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Not before the evening.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": _USAGE,
}
COMPLETION_WITH_TOOL_CALL: Final = {
    **_COMPLETION,
    "model": "fortissimo",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "forecast", "arguments": '{"place":"Bern"}'},
                    }
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": _USAGE,
}


def _chunk(choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**_COMPLETION, "object": "chat.completion.chunk", "model": "forte", "choices": choices, **more}


CHUNKS: Final = [
    _chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
    _chunk([{"index": 0, "delta": {"content": "A chase."}, "finish_reason": None}]),
    _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
    _chunk([], usage=_USAGE),
]

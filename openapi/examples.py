"""Examples of requests and responses."""

from typing import Any, Final

REQUEST_ID: Final = "019a8c2f5b3e7c10a1f24d6e8b90c3d5"
KEY_ID: Final = "019a8c2f00007c10a1f24d6e8b90c3d5"

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

MODEL: Final = {"id": "mezzo", "object": "model", "created": 1763294400, "owned_by": "legato"}
MODELS: Final = {
    "object": "list",
    "data": [{**MODEL, "id": class_id} for class_id in ("auto", "mezzo", "forte", "fortissimo")],
}
_SPENT: Final = {
    "prompt_tokens": 11,
    "cached_tokens": 0,
    "completion_tokens": 7,
    "cost_nanos": 2570,
    "cost_usd": "0.00000257",
}
USAGE_PAGE: Final = {
    "object": "page",
    "data": [
        {
            "object": "bucket",
            "start_time": 1763251200,
            "end_time": 1763337600,
            "results": [{"object": "usage.result", "model": "mezzo", "key_id": None, "requests": 1, **_SPENT}],
        }
    ],
    "has_more": False,
    "next_page": None,
    "balance_usd": "4.99999743",
    "owed_usd": "0.00",
    "spend_limits": [
        {
            "object": "spend_limit",
            "key_id": KEY_ID,
            "period": "day",
            "limit_usd": "1.00",
            "spent_usd": "0.00000257",
            "left_usd": "0.99999743",
            "resets_at": 1763337600,
        }
    ],
}
USAGE_REQUEST: Final = {
    "object": "usage.request",
    "id": REQUEST_ID,
    "state": "settled",
    "model": "mezzo",
    "key_id": KEY_ID,
    "created": 1763294400,
    "ended": 1763294401,
    "end": "complete",
    "basis": "provider",
    **_SPENT,
    "held_nanos": 0,
    "price_version": 1,
}

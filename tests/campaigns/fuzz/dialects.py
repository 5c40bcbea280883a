"""Bodies of chat completions in the terms of the other dialects, however wrong they are; and what only these have."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MESSAGES_PATH: Final = "/v1/messages"
COUNT_PATH: Final = "/v1/messages/count_tokens"
RESPONSES_PATH: Final = "/v1/responses"


def _as_message(chat: dict[str, Any]) -> dict[str, Any]:
    body = {"max_tokens": 100, **chat}
    if "stop" in body:
        body["stop_sequences"] = body.pop("stop")
    if isinstance(body.get("tools"), list):
        body["tools"] = [_message_tool(tool) for tool in body["tools"]]
    if isinstance(body.get("messages"), list):
        body["messages"] = [_message(each) for each in body["messages"]]
    return body


def _message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    if message.get("role") == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    if "tool_calls" in message:
        calls = [{"type": "tool_use", "id": call["id"], "name": "f", "input": {}} for call in message["tool_calls"]]
        return {"role": "assistant", "content": calls}
    return message


def _message_tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    function = tool["function"]
    return {"name": function["name"], "input_schema": function.get("parameters", {})}


def _as_response(chat: dict[str, Any]) -> dict[str, Any]:
    body = dict(chat)
    if "messages" in body:
        given = body.pop("messages")
        body["input"] = [item for each in given for item in _items(each)] if isinstance(given, list) else given
    if "max_tokens" in body:
        body["max_output_tokens"] = body.pop("max_tokens")
    if isinstance(body.get("tools"), list):
        body["tools"] = [
            {"type": "function", **tool["function"]} if isinstance(tool, dict) else tool for tool in body["tools"]
        ]
    return body


def _items(message: Any) -> list[Any]:
    if not isinstance(message, dict):
        return [message]
    if message.get("role") == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    if "tool_calls" in message:
        return [
            {"type": "function_call", "call_id": call["id"], "name": "f", "arguments": "{}"}
            for call in message["tool_calls"]
        ]
    content = message.get("content")
    if isinstance(content, list):
        content = [{**part, "type": "input_text"} for part in content]
    return [{**message, "content": content}]


def own_blocks(size_bytes: int, choose: random.Random) -> dict[str, Any]:
    """Makes a message of blocks that chats have no equals of, with seals that are none of ours."""
    kinds: Sequence[dict[str, Any]] = (
        {
            "type": "thinking",
            "thinking": "Hm. 雨",
            "signature": choose.choice(["none", "1_abc", "1_" + "x" * 200, "\ud800"]),
        },
        {"type": "redacted_thinking", "data": choose.choice(["", "9_a.8_b", "." * 50])},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"a": [{}] * 3}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "text", "text": "a", "cache_control": choose.choice([{"type": "ephemeral"}, [], 7])},
    )
    blocks = [choose.choice(kinds) for _ in range(max(1, size_bytes // 80))]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "b"}], "is_error": True}
    ]
    edit = {
        "type": "clear_thinking_20251015",
        "keep": choose.choice(["all", {"type": "thinking_turns", "value": 1}, -1]),
    }
    return {
        "messages": [{"role": "assistant", "content": blocks}, {"role": "user", "content": results * 3}],
        "context_management": {"edits": [edit]},
        "thinking": choose.choice([{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 10**30}, {}]),
        "stream": choose.random() < 0.5,
    }


def own_items(size_bytes: int, choose: random.Random) -> dict[str, Any]:
    kinds: Sequence[dict[str, Any]] = (
        {"type": "reasoning", "summary": [], "encrypted_content": choose.choice(["1_abc", "", "\ud800", "." * 50])},
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "*** 雨\u0000"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "b"}]},
        {"type": "function_call", "call_id": "b", "namespace": "n" * 70, "name": "f", "arguments": "{"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    )
    grammar = {"type": "grammar", "syntax": "lark", "definition": "(" * 1000}
    named = [{"type": "custom", "name": f"t{number}", "format": grammar} for number in range(3)]
    group = {
        "type": "namespace",
        "name": "n",
        "tools": [{"type": "function", "name": "f"}] * choose.choice([0, 1, 300]),
    }
    return {
        "input": [choose.choice(kinds) for _ in range(max(1, size_bytes // 80))],
        "tools": [*named, group, {"type": "web_search"}],
        "tool_choice": choose.choice(
            ["auto", {"type": "allowed_tools", "mode": "auto", "tools": named}, {"type": "mcp"}]
        ),
        "include": ["reasoning.encrypted_content"],
        "stream": choose.random() < 0.5,
    }


OWN: Final[Mapping[str, Callable[[int, random.Random], dict[str, Any]]]] = {
    MESSAGES_PATH: own_blocks,
    COUNT_PATH: own_blocks,
    RESPONSES_PATH: own_items,
}
IN_TERMS_OF: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    MESSAGES_PATH: _as_message,
    COUNT_PATH: _as_message,
    RESPONSES_PATH: _as_response,
}

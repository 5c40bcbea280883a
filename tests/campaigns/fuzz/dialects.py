"""Bodies of chat completions in the terms of the other dialects, however wrong they are."""

from collections.abc import Callable, Mapping
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


IN_TERMS_OF: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    MESSAGES_PATH: _as_message,
    COUNT_PATH: _as_message,
    RESPONSES_PATH: _as_response,
}

"""Messages of earlier turns, as clients send them."""

from typing import Any

USER: dict[str, Any] = {"role": "user", "content": "Hi"}


def called(*calls: tuple[str, str, str], content: str | None = None) -> dict[str, Any]:
    """The id, the name and the arguments of each call."""
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def gave(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}

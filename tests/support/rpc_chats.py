"""Chats of the HTTP API's form, as typed messages of `legato.chat.v1.ChatService`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from legato_protos.chat.v1 import chat_pb2 as pb

ROLES: Final = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_DEVELOPER,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
TOOL_MODES: Final = {
    "auto": pb.TOOL_MODE_AUTO,
    "none": pb.TOOL_MODE_NONE,
    "required": pb.TOOL_MODE_REQUIRED,
}
_SAMPLING: Final = [field.name for field in pb.Sampling.DESCRIPTOR.fields if field.name != "stop"]
_PLAIN: Final = [field.name for field in pb.Chat.DESCRIPTOR.fields if field.message_type is None]


def socket_of(data: Path) -> str:
    """Returns the address at which a service with this data folder serves programs."""
    return f"unix:{data}/run/chat.sock"


def to_chat(body: Mapping[str, Any]) -> pb.Chat:
    """Converts the body of a chat. A field that has no place in the typed message is a mistake of the test."""
    left = dict(body)
    left.pop("stream", None)
    chat = pb.Chat(messages=[_message(message) for message in left.pop("messages", ())])
    for name, value in _renamed(left).items():
        setattr(chat, name, value)
    if (reasoning := left.pop("reasoning", None)) is not None:
        chat.reasoning.CopyFrom(pb.Reasoning(**reasoning))
    chat.tools.extend(_tool(tool) for tool in left.pop("tools", ()))
    if (choice := left.pop("tool_choice", None)) is not None:
        if isinstance(choice, str):
            chat.tool_choice.mode = TOOL_MODES[choice]
        elif choice["type"] == "allowed_tools":
            allowed = chat.tool_choice.allowed_tools
            allowed.mode = TOOL_MODES[choice["allowed_tools"]["mode"]]
            allowed.function_names.extend(tool[tool["type"]]["name"] for tool in choice["allowed_tools"]["tools"])
        else:
            chat.tool_choice.function_name = choice[choice["type"]]["name"]
    if (wanted := left.pop("response_format", None)) is not None:
        chat.response_format.CopyFrom(_response_format(wanted))
    if sampling := {name: left.pop(name) for name in _SAMPLING if name in left}:
        chat.sampling.CopyFrom(pb.Sampling(**sampling))
    chat.sampling.stop.extend(left.pop("stop", ()))
    assert not left, left.keys()
    return chat


def _renamed(left: dict[str, Any]) -> dict[str, Any]:
    """Takes the fields that have a plain value in the message."""
    fields = {name: left.pop(name) for name in _PLAIN if name in left}
    fields |= left.pop("stream_options", {})
    if "chat_template_kwargs" in left:
        fields["chat_template_kwargs_json"] = json.dumps(left.pop("chat_template_kwargs"))
    return fields


def _message(message: Mapping[str, Any]) -> pb.Message:
    left = dict(message)
    made = pb.Message(role=ROLES[left.pop("role")])
    content = left.pop("content", None)
    if isinstance(content, str):
        made.text = content
    elif content is not None:
        made.parts.CopyFrom(pb.Parts(parts=[pb.Part(text=part["text"], **_mark(part)) for part in content]))
    for call in left.pop("tool_calls", ()):
        custom = call.get("custom")
        fields = call["function"] if custom is None else {"name": custom["name"], "arguments": custom["input"]}
        made.tool_calls.add(id=call["id"], is_custom=custom is not None, **fields)
    if (reasoning := left.pop("reasoning_content", None)) is not None:
        made.reasoning = reasoning
    for detail in left.pop("reasoning_details", ()):
        made.reasoning_data = detail["data"]
    for name in list(left):
        setattr(made, name, left.pop(name))
    return made


def _tool(tool: Mapping[str, Any]) -> pb.Tool:
    if (custom := tool.get("custom")) is not None:
        grammar = custom.get("format", {}).get("grammar", {})
        made = pb.CustomTool(name=custom["name"], description=custom.get("description", ""))
        made.grammar_syntax, made.grammar = grammar.get("syntax", ""), grammar.get("definition", "")
        return pb.Tool(custom=made, **_mark(tool))
    return pb.Tool(function=pb.Function(**_with_text(tool["function"], "parameters")), **_mark(tool))


def _mark(marked: Mapping[str, Any]) -> dict[str, Any]:
    if "cache_control" not in marked:
        return {}
    return {"cache_control": {name: value for name, value in marked["cache_control"].items() if name != "type"}}


def _response_format(wanted: Mapping[str, Any]) -> pb.ResponseFormat:
    match wanted["type"]:
        case "text":
            return pb.ResponseFormat(text=pb.TextFormat())
        case "json_object":
            return pb.ResponseFormat(json_object=pb.JsonObjectFormat())
        case _:
            return pb.ResponseFormat(json_schema=pb.JsonSchemaFormat(**_with_text(wanted["json_schema"], "schema")))


def _with_text(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        (f"{key}_json" if key == name else key): json.dumps(value) if key == name else value
        for key, value in fields.items()
    }

"""Renders a typed chat as the JSON body of `/v1/chat/completions`, so that both have one validation.

What is not set is left out. What the JSON format has no place for, such as a role that is not known, is left out too:
validation then says what is missing. A JSON schema that was sent as text is passed on as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Final

import msgspec
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from edge.wire.chat_request import BYTES_PER_ELEMENT, check_count, check_tool_count
from edge.wire.checked_json import LARGEST_FIELD_BYTES, SLICE_BYTES, invalid
from edge.wire.request_fields import UnreadObject
from edge.wire.sealed_reasoning import past_reasoning
from legato_protos.chat.v1 import chat_pb2 as pb
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

_ROLES: Final = {
    number: name.removeprefix("ROLE_").lower() for name, number in pb.Role.items() if number != pb.ROLE_UNSPECIFIED
}
_TOOL_MODES: Final = {
    number: name.removeprefix("TOOL_MODE_").lower()
    for name, number in pb.ToolMode.items()
    if number != pb.TOOL_MODE_UNSPECIFIED
}
# Larger numbers are not exact, and stay what they are.
_LARGEST_EXACT: Final = 2**53

MOST_STOPS: Final = 4
# The fields that have a schema as a Struct, and those that have it as text.
_SCHEMAS: Final = frozenset({"parameters", "schema"})
_SCHEMA_TEXTS: Final = {f"{name}_json": name for name in _SCHEMAS}

_TEMPLATE_KWARGS: Final = "chat_template_kwargs_json"

_encode = msgspec.json.encode
_object_decoder = msgspec.json.Decoder(UnreadObject)


async def render_chat(chat: pb.Chat, *, is_streamed: bool, unknown: Sequence[str] = ()) -> bytes:
    """Returns the body; `unknown` are names of fields that are to be told as ignored."""
    yielder = Yielder(SLICE_BYTES)
    fields = _parameters(chat)
    if is_streamed:
        fields["stream"] = True
    # A field that validation does not know either.
    fields |= dict.fromkeys(unknown, True)
    fields_json = [_encode(fields)[1:-1]] if fields else []
    # Checked first, since an element of two bytes takes microseconds to render.
    check_count(elements := len(chat.messages), "messages")
    check_tool_count(len(chat.tools))
    messages_json = []
    for index, message in enumerate(chat.messages):
        elements += _check_elements(message, elements, f"messages[{index}]")
        messages_json.append(_encode(await _message(message, yielder)))
        await yielder.spend(len(messages_json[-1]) + BYTES_PER_ELEMENT)
    tools_json = []
    for index, tool in enumerate(chat.tools):
        tools_json.append(_encode(_tool(tool, f"tools[{index}]")))
        await yielder.spend(len(tools_json[-1]) + BYTES_PER_ELEMENT)
    for name, elements_json in ((b"messages", messages_json), (b"tools", tools_json)):
        if elements_json:
            fields_json.append(b'"%b":[%b]' % (name, b",".join(elements_json)))
    return b"{%b}" % b",".join(fields_json)


def _check_elements(message: pb.Message, before: int, name: str) -> int:
    """Returns how many parts and tool calls the message has, unless these are too many with those before."""
    parts, calls = len(message.parts.parts), len(message.tool_calls)
    check_count(before + parts, f"{name}.content")
    check_count(before + parts + calls, f"{name}.tool_calls")
    return parts + calls


def _parameters(chat: pb.Chat) -> dict[str, object]:
    fields = _scalars(chat)
    if chat.HasField("include_obfuscation"):
        fields["stream_options"] = {"include_obfuscation": fields.pop("include_obfuscation")}
    if chat.chat_template_kwargs_json:
        template_kwargs = _checked_object(chat.chat_template_kwargs_json, _TEMPLATE_KWARGS)
        fields[_TEMPLATE_KWARGS.removesuffix("_json")] = template_kwargs
        del fields[_TEMPLATE_KWARGS]
    if chat.HasField("reasoning"):
        fields["reasoning"] = {**_scalars(chat.reasoning), "exclude": not chat.include_reasoning}
    custom = {tool.custom.name for tool in chat.tools if tool.HasField("custom")}
    if (tool_choice := _tool_choice(chat.tool_choice, custom)) is not None:
        fields["tool_choice"] = tool_choice
    if chat.HasField("sampling"):
        fields |= _sampling(chat.sampling)
    if kind := chat.response_format.WhichOneof("kind"):
        answer_format: dict[str, object] = {"type": kind}
        if kind == "json_schema":
            answer_format[kind] = _described(chat.response_format.json_schema, "response_format.json_schema")
        fields["response_format"] = answer_format
    return fields


def _scalars(message: Message) -> dict[str, object]:
    """Renders the texts, numbers and truths of a message, which have the names of the JSON format."""
    return {
        field.name: _number(given, field.name) if isinstance(given, float) else given
        for field, given in message.ListFields()
        if field.message_type is None and not field.is_repeated
    }


def _sampling(sampling: pb.Sampling) -> dict[str, object]:
    fields = _scalars(sampling)
    if sampling.stop:
        # One more than there may be, which validation refuses.
        fields["stop"] = sampling.stop[: MOST_STOPS + 1]
    # Each has six bytes of JSON at least.
    if len(sampling.logit_bias) > LARGEST_FIELD_BYTES // 6:
        raise invalid(Sentence("field_too_large", name="logit_bias", most_bytes=LARGEST_FIELD_BYTES), "logit_bias")
    if sampling.logit_bias:
        fields["logit_bias"] = {
            token: _number(bias, "logit_bias") for token, bias in sorted(sampling.logit_bias.items())
        }
    return fields


def _tool_choice(choice: pb.ToolChoice, custom: Collection[str]) -> object:
    if choice.WhichOneof("kind") == "function_name":
        return _named_tool(choice.function_name, custom)
    if choice.HasField("allowed_tools"):
        allowed = choice.allowed_tools
        mode = {"mode": _TOOL_MODES.get(allowed.mode, allowed.mode)} if allowed.mode else {}
        tools = [_named_tool(name, custom) for name in allowed.function_names]
        return {"type": "allowed_tools", "allowed_tools": {**mode, "tools": tools}}
    # Validation refuses a number, which is a mode that is not known.
    return _TOOL_MODES.get(choice.mode, choice.mode or None)


def _named_tool(name: str, custom: Collection[str]) -> dict[str, object]:
    kind = "custom" if name in custom else "function"
    return {"type": kind, kind: {"name": name}}


async def _message(message: pb.Message, yielder: Yielder) -> dict[str, object]:
    fields: dict[str, object] = {}
    if (role := _ROLES.get(message.role)) is not None:
        fields["role"] = role
    kind = message.WhichOneof("content")
    if kind == "text":
        fields["content"] = message.text
    elif kind == "parts":
        fields["content"] = parts = []
        for part in message.parts.parts:
            parts.append(_part(part))
            await yielder.spend(BYTES_PER_ELEMENT)
    if message.tool_calls:
        fields["tool_calls"] = calls = []
        for call in message.tool_calls:
            calls.append({"id": call.id, **_call(call)})
            await yielder.spend(BYTES_PER_ELEMENT)
    for field in ("name", "tool_call_id", "refusal"):
        if given := getattr(message, field):
            fields[field] = given
    return fields | _past_reasoning(message)


def _call(call: pb.ToolCall) -> dict[str, object]:
    if call.is_custom:
        return {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _past_reasoning(message: pb.Message) -> dict[str, object]:
    fields: dict[str, object] = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return fields | past_reasoning([message.reasoning_data])


def _part(part: pb.Part) -> dict[str, object]:
    fields: dict[str, object] = {"type": "text", **_cache_control(part)}
    if part.HasField("text"):
        fields["text"] = part.text
    return fields


def _custom_tool(tool: pb.CustomTool) -> dict[str, object]:
    fields: dict[str, object] = {"name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    if tool.grammar:
        grammar = {"syntax": tool.grammar_syntax, "definition": tool.grammar}
        fields["format"] = {"type": "grammar", "grammar": grammar}
    return fields


def _tool(tool: pb.Tool, name: str) -> dict[str, object]:
    if tool.HasField("custom"):
        return {"type": "custom", "custom": _custom_tool(tool.custom), **_cache_control(tool)}
    if not tool.HasField("function"):
        return {}
    return {
        "type": "function",
        "function": _described(tool.function, f"{name}.function"),
        **_cache_control(tool),
    }


def _cache_control(marked: pb.Part | pb.Tool) -> dict[str, object]:
    if not marked.HasField("cache_control"):
        return {}
    ttl = {"ttl": marked.cache_control.ttl} if marked.cache_control.ttl else {}
    return {"cache_control": {"type": "ephemeral", **ttl}}


def _described(thing: pb.Function | pb.JsonSchemaFormat, name: str) -> dict[str, object]:
    """Renders what has a name, a description, a schema and strictness."""
    fields: dict[str, object] = {}
    for field, given in thing.ListFields():
        place = f"{name}.{field.name}"
        if field.name in _SCHEMAS:
            if given.ByteSize() > LARGEST_FIELD_BYTES:
                message = Sentence(
                    "field_larger_than_text", name=place, most_bytes=LARGEST_FIELD_BYTES, field=field.name
                )
                raise invalid(message, place)
            fields[field.name] = _object(given.fields, place)
        elif (rendered := _SCHEMA_TEXTS.get(field.name)) is None:
            fields[field.name] = given
        elif rendered in fields:
            raise invalid(Sentence("field_set_twice", name=name, field=rendered, other=place), place)
        else:
            fields[rendered] = _checked_object(given, place)
    return fields


def _checked_object(text: str, name: str) -> msgspec.Raw:
    """Returns the text of a JSON object, to be part of the body as it is."""
    given = text.encode()
    try:
        _object_decoder.decode(given)
    except msgspec.ValidationError:
        raise invalid(Sentence("object_expected", name=name), name) from None
    except msgspec.DecodeError:
        raise invalid(Sentence("field_not_json", name=name), name) from None
    except RecursionError:
        raise invalid(Sentence("field_nested", name=name), name) from None
    return msgspec.Raw(given)


def _object(fields: Mapping[str, Value], name: str) -> dict[str, object]:
    """Renders the fields in the order of their names: a message has them in none, and equal chats must have equal
    bytes, for providers' caches and for retries."""
    return {field: _value(value, name) for field, value in sorted(fields.items())}


def _value(value: Value, name: str) -> object:
    match value.WhichOneof("kind"):
        case "number_value":
            return _number(value.number_value, name)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _object(value.struct_value.fields, name)
        case "list_value":
            return [_value(each, name) for each in value.list_value.values]
    return None


def _number(number: float, name: str) -> float | int:
    """Returns whole numbers as integers: a Struct knows only floats, and models and validators tell them apart."""
    if not isfinite(number):
        raise invalid(Sentence("finite_number_expected", name=name), name)
    return int(number) if abs(number) <= _LARGEST_EXACT and number == int(number) else number

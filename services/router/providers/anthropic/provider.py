"""Anthropic's Messages API."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw

from services.chassis.sentence import Sentence
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.anthropic.cache_marks import mark_prefix
from services.router.providers.base import (
    CannotDo,
    ProviderCall,
    ProviderRoute,
    Timeouts,
    as_count,
    as_object,
)
from services.router.providers.http.http_provider import HttpProvider
from services.router.providers.translation.conversion import joined, merged, write_list
from services.router.providers.translation.turns import (
    Conversation,
    ModelTurn,
    ResultsTurn,
    SystemTurn,
    Text,
    Turn,
    UserTurn,
    read_conversation,
)
from services.router.schema.parameters import KnownParameters, Parameters
from services.router.schema.tools import CallableFunctions, Function, Mode

# The versions differ in the key's header, and in whether sampling parameters are accepted.
VERSION_2023 = "2023-06-01"
VERSION_2026 = "2026-10-21"

HIGHEST_TEMPERATURE = 1.0

# Models take system messages within a conversation from these versions on; other names are not known to.
_MODEL_NAME = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")
_SYSTEM_INSIDE_SINCE = (5, 5)
_FAMILIES_WITH_SYSTEM_INSIDE_SINCE = {"opus": (4, 8), "fable": (5, 0)}

# A minimal user turn, inserted if the conversation begins with the model, as with a greeting.
_OPENING = Text(Raw(b'"."'))

_NO_THINKING = {"type": "disabled"}
_SAMPLING = {"temperature", "top_p"}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
# Parameters that are always translated.
_TRANSLATED = {"stop", "response_format", "parallel_tool_calls"}
_TOOL_MODES = {Mode.AUTO: "auto", Mode.NONE: "none", Mode.REQUIRED: "any"}


class AnthropicProvider(HttpProvider):
    answer_type = MessageAnswer
    versions = (VERSION_2026, VERSION_2023)
    flags = ("prompt_caching", "system_inside")

    def __init__(self, route: ProviderRoute, timeouts: Timeouts) -> None:
        self._version = route.version
        self._marks_prefix = route.prompt_caching
        self._system_inside = route.system_inside
        super().__init__(route, timeouts, {"anthropic-version": route.version})
        # The API refuses a request without it.
        self.needs_max_tokens = True

    def _key_headers(self, api_key: str) -> dict[str, str]:
        return {"x-api-key": api_key} if self._version == VERSION_2023 else {"Authorization": f"Bearer {api_key}"}

    def _path(self, call: ProviderCall) -> str:
        return f"{self._base_path}/v1/messages"

    def _refuses_stop(self, stop: str) -> bool:
        return not stop.strip()

    def _write_body(self, call: ProviderCall) -> bytes:
        keeps_system_inside = self._system_inside and takes_system_inside(call.model_name)
        conversation = read_conversation(call.messages, keeps_system_inside=keeps_system_inside)
        tools = call.tools.parsed
        functions = mark_prefix(conversation, tools.functions if tools else (), is_automatic=self._marks_prefix)
        request = merged(_request(call, conversation, functions, self._version), self._extra)
        if "thinking" in request:
            if not _may_think(request, conversation):
                del request["thinking"]
            elif request["thinking"] != _NO_THINKING:
                # Sampling parameters are not allowed with thinking, and the client cannot know that it is on.
                request = {name: value for name, value in request.items() if name not in _SAMPLING - set(self._extra)}
        call.ignore(_not_sent(call.parameters, request))
        if call.stream:
            request["stream"] = True
        return msgspec.json.encode(request)


def takes_system_inside(model_name: str) -> bool:
    """Returns whether a model takes system messages within a conversation, by its name."""
    name = _MODEL_NAME.match(model_name)
    if name is None:
        return False
    since = _FAMILIES_WITH_SYSTEM_INSIDE_SINCE.get(name["family"], _SYSTEM_INSIDE_SINCE)
    return (int(name["major"]), int(name["minor"] or 0)) >= since


def _request(
    call: ProviderCall, conversation: Conversation, functions: Sequence[Function], version: str
) -> dict[str, object]:
    parameters = call.parameters.known
    request: dict[str, object] = {
        "model": call.model_name,
        "max_tokens": call.max_tokens,
        "messages": _messages(conversation.turns),
    }
    if conversation.system:
        request["system"] = write_list(map(_text_block, conversation.system))
    request.update(_tool_fields(call, conversation, functions, parameters))
    if parameters.stops:
        request["stop_sequences"] = parameters.stops
    if version == VERSION_2023:
        request.update(_sampling(parameters))
    output_config = _output_format(parameters) | _effort(parameters)
    if output_config:
        request["output_config"] = output_config
    return request


def _not_sent(parameters: Parameters, request: dict[str, object]) -> Iterator[str]:
    """Yields the parameters that the request does not have, or has with another value."""
    known = parameters.known
    sent = {name: request.get(name) for name in _SAMPLING}
    sent["reasoning_effort"] = as_object(request.get("output_config")).get("effort")
    wanted = {"temperature": known.temperature, "top_p": known.top_p, "reasoning_effort": _effort(known).get("effort")}
    for name in parameters.fields:
        if name not in _TRANSLATED and (wanted.get(name) is None or sent.get(name) != wanted[name]):
            yield name


def _messages(said: list[Turn]) -> Raw:
    """Writes the messages; tool results and the user text after them are one turn, and the user's turn is first."""
    if isinstance(said[0], ModelTurn):
        said = [UserTurn([_OPENING]), *said]
    messages = []
    for role, together in groupby(said, _role):
        content = write_list(block for turn in together for block in _blocks(turn))
        messages.append(msgspec.json.encode({"role": role, "content": content}))
    return joined(messages)


def _role(turn: Turn) -> str:
    if isinstance(turn, SystemTurn):
        return "system"
    return "assistant" if isinstance(turn, ModelTurn) else "user"


def _blocks(turn: Turn) -> Iterator[dict[str, object]]:
    if isinstance(turn, ResultsTurn):
        for result in turn.results:
            block = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
            yield block | _mark(result.cache_control)
        return
    yield from map(_text_block, turn.texts)
    if isinstance(turn, ModelTurn):
        for call in turn.calls:
            yield {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}


def _text_block(text: Text) -> dict[str, object]:
    return {"type": "text", "text": text.json} | _mark(text.cache_control)


def _mark(cache_control: Raw | None) -> dict[str, object]:
    return {} if cache_control is None else {"cache_control": cache_control}


def _tool_fields(
    call: ProviderCall, conversation: Conversation, functions: Sequence[Function], parameters: KnownParameters
) -> dict[str, object]:
    tools = call.tools.parsed
    if tools is None:
        # Functions called in earlier turns must be defined.
        called = [Function(name) for name in conversation.called_names]
        if not called:
            return {}
        tools, functions = CallableFunctions(called, Mode.NONE), called
    choice: dict[str, object] = {"type": _TOOL_MODES[tools.mode]}
    if tools.forced is not None:
        choice = {"type": "tool", "name": tools.forced}
    if parameters.parallel_tool_calls is False and tools.mode is not Mode.NONE:
        choice["disable_parallel_tool_use"] = True
    return {"tools": write_list(map(_definition, functions)), "tool_choice": choice}


def _definition(function: Function) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    if function.has_parameters:
        schema |= msgspec.json.decode(function.parameters, type=dict[str, Raw])
    definition: dict[str, object] = {"name": function.name, "input_schema": schema}
    if function.description:
        definition["description"] = function.description
    if function.strict:
        definition["strict"] = True
    return definition | _mark(function.cache_control or None)


def _sampling(parameters: KnownParameters) -> dict[str, object]:
    temperature = None if parameters.temperature is None else min(parameters.temperature, HIGHEST_TEMPERATURE)
    sampling = {"temperature": temperature, "top_p": parameters.top_p}
    return {name: value for name, value in sampling.items() if value is not None}


def _output_format(parameters: KnownParameters) -> dict[str, object]:
    wanted = parameters.response_format
    if wanted.type == "text":
        return {}
    if wanted.answer_schema is None:
        raise CannotDo(Sentence("json_needs_schema"), "response_format")
    return {"format": {"type": "json_schema", "schema": wanted.answer_schema}}


def _effort(parameters: KnownParameters) -> dict[str, object]:
    effort = _EFFORTS.get(parameters.reasoning_effort or "")
    return {} if effort is None else {"effort": effort}


def _may_think(request: dict[str, Any], conversation: Conversation) -> bool:
    """Returns whether thinking may stay enabled. It excludes a forced tool call, and needs the thoughts before the last
    call, or before the beginning of an answer, which were not kept. Its budget must also leave room for the answer."""
    is_forced = request.get("tool_choice", {}).get("type") in ("any", "tool")
    # A tool result may be followed by user text in the same turn.
    turns = [turn for turn in conversation.turns[-3:] if not isinstance(turn, SystemTurn)]
    last = turns[-1]
    is_after_call = any(isinstance(turn, ResultsTurn) for turn in turns[-2:])
    # The route's; without one, the model decides.
    budget_tokens = as_count(as_object(request["thinking"]).get("budget_tokens")) or 0
    return not (is_forced or is_after_call or isinstance(last, ModelTurn)) and budget_tokens < request["max_tokens"]

"""Anthropic's Messages API."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

import msgspec
from msgspec import Raw

from services.router.providers.abilities import Abilities
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.anthropic.cache_marks import mark_prefix
from services.router.providers.anthropic.past_thinking import (
    BINDING_BETA,
    THOUGHTS,
    binds_thoughts,
    in_order,
    leave_changed_out,
)
from services.router.providers.anthropic.platforms import OWN, PLATFORMS, VERSION_2023, VERSION_2026
from services.router.providers.anthropic.thinking import THINKING_ON, choose_thinking, fit_thinking, may_have_thoughts
from services.router.providers.base import ProviderCall, ProviderRoute, Timeouts, as_object
from services.router.providers.errors import lessons
from services.router.providers.http.http_provider import NO_HEADERS, HttpProvider
from services.router.providers.translation import schemas
from services.router.providers.translation.conversion import joined, merged, write_list
from services.router.providers.translation.turns import (
    Conversation,
    ModelTurn,
    PastCall,
    ResultsTurn,
    SystemTurn,
    Text,
    Turn,
    UserTurn,
    read_conversation,
)
from services.router.reasoning.restoring import TakenBack
from services.router.schema.messages import encode_string
from services.router.schema.parameters import KnownParameters, Parameters
from services.router.schema.tools import CallableFunctions, Function, Mode

BETA_HEADER = "anthropic-beta"
HIGHEST_TEMPERATURE = 1.0

# A minimal user turn, inserted if the conversation begins with the model, as with a greeting.
_OPENING = Text(Raw(b'"."'))

# The request to a model that does not go on with its own last message.
_GO_ON = Text(Raw(b'"Continue your last message exactly where it ends, and repeat nothing of it."'))
_SAMPLING = {"temperature", "top_p", "top_k"}
# Parameters that are always translated, or named by what is used in their place.
_TRANSLATED = {"stop", "response_format", "parallel_tool_calls", "reasoning_effort", "reasoning"}
_TOOL_MODES = {Mode.AUTO: "auto", Mode.NONE: "none", Mode.REQUIRED: "any"}


class AnthropicProvider(HttpProvider):
    kind = "anthropic"
    answer_type = MessageAnswer
    tool_name = re.compile(r"[a-zA-Z0-9_-]{1,128}")
    lessons = lessons.ANTHROPIC
    versions = OWN.versions
    platforms: ClassVar[Mapping[str, tuple[str, ...]]] = {name: each.versions for name, each in PLATFORMS.items()}
    flags = ("prompt_caching", "system_inside")

    def __init__(self, route: ProviderRoute, timeouts: Timeouts) -> None:
        self._version = route.version
        self._name = route.name
        self._marks_prefix = route.prompt_caching
        self._system_inside = route.system_inside
        self._platform = PLATFORMS.get(route.platform, OWN)
        # Names of what is not for all yet, to which some calls add their own.
        self._betas = tuple(value for name, value in route.headers if name == BETA_HEADER)
        others = tuple((name, value) for name, value in route.headers if name != BETA_HEADER)
        versions = {} if route.platform else {"anthropic-version": route.version}
        super().__init__(replace(route, headers=others), timeouts, versions)
        # The API refuses a request without it.
        self.needs_max_tokens = True

    def _key_headers(self, api_key: str) -> dict[str, str]:
        return {"x-api-key": api_key} if self._version == VERSION_2023 else {"Authorization": f"Bearer {api_key}"}

    def _path(self, call: ProviderCall) -> str:
        return f"{self._base_path}{self._platform.path(call.model_name, streams=call.stream)}"

    def takes_back(self, model_name: str) -> TakenBack:
        # A signature is valid for the models of one vendor, and for some of these alone.
        return TakenBack(f"anthropic {model_name}", f"anthropic {self._name} {model_name}", THOUGHTS)

    def _call_headers(self, call: ProviderCall) -> Mapping[str, str]:
        betas = self._betas_of(call)
        return {BETA_HEADER: betas} if betas and not self._platform.has_all_inside else NO_HEADERS

    def _betas_of(self, call: ProviderCall) -> str:
        return ",".join((*self._betas, BINDING_BETA) if binds_thoughts(call) else self._betas)

    def _refuses_stop(self, stop: str) -> bool:
        return not stop.strip()

    def _write_body(self, call: ProviderCall) -> bytes:
        abilities = call.takes
        if abilities.system_inside and not self._system_inside:
            abilities = replace(abilities, system_inside=False)
        conversation = read_conversation(call.messages, keeps_system_inside=abilities.system_inside)
        tools = call.tools.parsed
        functions = mark_prefix(conversation, tools.functions if tools else (), is_automatic=self._marks_prefix)
        if not abilities.prefill and isinstance(conversation.turns[-1], ModelTurn):
            conversation.turns.append(UserTurn([_GO_ON]))
        own = _request(call, abilities, conversation, functions, self._version)
        wanted = merged(own, self._extra)
        request = fit_thinking(wanted, abilities, conversation)
        if _effort_of(request) != _effort_of(own):
            call.ignore(("reasoning_effort",))
        if as_object(request.get("thinking")).get("type") in THINKING_ON:
            # Sampling parameters are not allowed with thinking, and the client cannot know that it is on.
            request = {name: value for name, value in request.items() if name not in _SAMPLING - set(self._extra)}
        with_thoughts = may_have_thoughts(wanted, request, abilities)
        if with_thoughts and binds_thoughts(call):
            request["thinking"] = leave_changed_out(as_object(request.get("thinking")))
        request["messages"] = _messages(conversation.turns, with_thoughts=with_thoughts)
        call.ignore(_not_sent(call.parameters, request))
        if call.stream:
            request["stream"] = True
        return msgspec.json.encode(self._platform.adapt(request, self._version, self._betas_of(call)))


def _request(
    call: ProviderCall,
    abilities: Abilities,
    conversation: Conversation,
    functions: Sequence[Function],
    version: str,
) -> dict[str, object]:
    parameters = call.parameters.known
    # These may ask the model for something at the end of the conversation.
    tool_fields = _tool_fields(call, abilities, conversation, functions, parameters)
    output_format = _output_format(call, abilities, conversation)
    request: dict[str, object] = {
        "model": call.model_name,
        "max_tokens": call.max_tokens,
        # Written last.
        "messages": [],
    }
    if conversation.system:
        request["system"] = write_list(map(_text_block, conversation.system))
    request.update(tool_fields)
    if parameters.stops:
        request["stop_sequences"] = parameters.stops
    if version != VERSION_2026 and abilities.sampling != "never":
        request.update(_sampling(parameters))
    effort, thinking = choose_thinking(call, abilities, has_tools=bool(tool_fields))
    output_config = output_format | effort
    if output_config:
        request["output_config"] = output_config
    if thinking:
        request["thinking"] = thinking
    return request


def _not_sent(parameters: Parameters, request: dict[str, object]) -> Iterator[str]:
    """Yields the parameters that the request does not have, or has with another value."""
    known = parameters.known
    wanted = {"temperature": known.temperature, "top_p": known.top_p, "top_k": known.top_k}
    for name in parameters.fields:
        if name not in _TRANSLATED and (wanted.get(name) is None or request.get(name) != wanted[name]):
            yield name


def _messages(turns: list[Turn], *, with_thoughts: bool) -> Raw:
    """Writes the messages; tool results and the user text after them are one turn, and the user's turn is first."""
    if isinstance(turns[0], ModelTurn):
        turns = [UserTurn([_OPENING]), *turns]
    messages = []
    for role, together in groupby(turns, _role):
        content = write_list(block for turn in together for block in _blocks(turn, with_thoughts=with_thoughts))
        messages.append(msgspec.json.encode({"role": role, "content": content}))
    return joined(messages)


def _role(turn: Turn) -> str:
    if isinstance(turn, SystemTurn):
        return "system"
    return "assistant" if isinstance(turn, ModelTurn) else "user"


def _blocks(turn: Turn, *, with_thoughts: bool) -> Iterator[dict[str, object]]:
    if isinstance(turn, ResultsTurn):
        for result in turn.results:
            block = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
            yield block | _mark(result.cache_control)
        return
    if not isinstance(turn, ModelTurn):
        yield from map(_text_block, turn.texts)
        return
    for part in in_order(turn, with_thoughts=with_thoughts):
        if isinstance(part, Text):
            yield _text_block(part)
        elif isinstance(part, PastCall):
            yield {"type": "tool_use", "id": part.call_id, "name": part.name, "input": part.arguments}
        else:
            yield part


def _text_block(text: Text) -> dict[str, object]:
    return {"type": "text", "text": text.json} | _mark(text.cache_control)


def _mark(cache_control: Raw | None) -> dict[str, object]:
    return {} if cache_control is None else {"cache_control": cache_control}


def _tool_fields(
    call: ProviderCall,
    abilities: Abilities,
    conversation: Conversation,
    functions: Sequence[Function],
    parameters: KnownParameters,
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
    if tools.mode is Mode.REQUIRED and not abilities.forced_tools:
        choice = {"type": "auto"}
        what = "one of the tools" if tools.forced is None else f"the tool {tools.forced}"
        conversation.turns.append(_instruction(abilities, f"Answer by calling {what}."))
        call.note("tool_choice", f"auto instead of {'required' if tools.forced is None else 'a function'}")
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
    if function.strict and not schemas.is_recursive(function.parameters):
        definition |= {"strict": True, "input_schema": schemas.ANTHROPIC.fit(Raw(msgspec.json.encode(schema)))}
    return definition | _mark(function.cache_control or None)


def _sampling(parameters: KnownParameters) -> dict[str, object]:
    temperature = None if parameters.temperature is None else min(parameters.temperature, HIGHEST_TEMPERATURE)
    sampling = {"temperature": temperature, "top_p": parameters.top_p, "top_k": parameters.top_k}
    return {name: value for name, value in sampling.items() if value is not None}


def _output_format(call: ProviderCall, abilities: Abilities, conversation: Conversation) -> dict[str, object]:
    """Returns the format of the answer. Where the API has no grammar for it, the model is asked for it."""
    wanted = call.parameters.known.response_format
    if wanted.type == "text":
        return {}
    schema = wanted.answer_schema
    if schema is not None and not schemas.is_recursive(schema):
        return {"format": {"type": "json_schema", "schema": schemas.ANTHROPIC.fit(schema)}}
    instruction = "Answer with one JSON object and nothing else: no words around it and no code fence."
    if schema is not None:
        instruction += f" It has this JSON schema: {bytes(schema).decode()}"
    conversation.turns.append(_instruction(abilities, instruction))
    call.note("response_format", "an instruction instead of a grammar")
    return {}


def _effort_of(request: Mapping[str, object]) -> object:
    return as_object(request.get("output_config")).get("effort")


def _instruction(abilities: Abilities, text: str) -> Turn:
    """Returns a turn that asks the model for what it cannot be made to do."""
    texts = [Text(encode_string(text))]
    return SystemTurn(texts) if abilities.system_inside else UserTurn(texts)

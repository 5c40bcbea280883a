"""Google's Gemini API: generateContent and streamGenerateContent."""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
from msgspec import Raw

from services.router.providers.answer import ProviderAnswer
from services.router.providers.base import ProviderCall, ProviderRoute, Timeouts, as_object
from services.router.providers.errors import lessons
from services.router.providers.gemini.answer import ContentAnswer
from services.router.providers.gemini.grounded_answer import GroundedAnswer
from services.router.providers.http.http_provider import HttpProvider
from services.router.providers.translation import schemas
from services.router.providers.translation.conversion import joined, merged, write_list
from services.router.providers.translation.google_signatures import NO_SIGNATURE, needs_signatures
from services.router.providers.translation.turns import ModelTurn, PastCall, ResultsTurn, Text, Turn, read_conversation
from services.router.reasoning.restoring import TakenBack
from services.router.schema.parameters import EFFORT_TOKENS, Parameters
from services.router.schema.thoughts import CallSignature
from services.router.schema.tools import Function, Mode

# Google's cloud, with addresses of its own.
VERTEX = "vertex"
# Seeds are 32-bit integers.
_SEEDS = 2**31

# The names of parameters in Google's words. Those that are missing here are not offered.
_GENERATION_FIELDS = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "response_format": "responseMimeType",
}
_EFFORT_NAMES = ("reasoning_effort", "reasoning")
# The largest number of tokens for thinking that all models with such a number take.
MOST_BUDGET_TOKENS = 24_576

_TOOL_MODES = {Mode.AUTO: "AUTO", Mode.NONE: "NONE", Mode.REQUIRED: "ANY"}


class GeminiProvider(HttpProvider):
    kind = "gemini"
    answer_type = ContentAnswer
    lessons = lessons.GEMINI
    versions = ("v1", "v1beta")
    platforms: ClassVar[Mapping[str, tuple[str, ...]]] = {VERTEX: ()}
    tool_name = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
    flags = ("always_max_tokens",)

    def __init__(self, route: ProviderRoute, timeouts: Timeouts) -> None:
        self._version = route.version
        self._name = route.name
        self._is_vertex = route.platform == VERTEX
        super().__init__(route, timeouts)

    def _answer_type(self, call: ProviderCall) -> type[ProviderAnswer]:
        # Nothing else cites, and most answers' texts need not be kept.
        return GroundedAnswer if "tools" in self._extra else ContentAnswer

    def _key_headers(self, api_key: str) -> dict[str, str]:
        # Not in the URL, as URLs are logged on the way.
        return {"x-goog-api-key": api_key}

    def takes_back(self, model_name: str) -> TakenBack:
        name = model_name.rpartition("/")[2]
        return TakenBack(f"google {name}", f"google {self._name} {name}", (CallSignature,))

    def _write_body(self, call: ProviderCall) -> bytes:
        translated = _request(call)
        request = merged(translated, self._extra)
        if not self._is_vertex:
            # Google stores requests in its logs unless this is set; nothing in the routes file may override it. Vertex
            # does not have the field, and stores none unless the project is configured to.
            request["store"] = False
        ours, sent = as_object(translated["generationConfig"]), as_object(request["generationConfig"])
        call.ignore(_not_sent(call.parameters, ours, sent))
        return msgspec.json.encode(request)

    def _path(self, call: ProviderCall) -> str:
        model = call.model_name if "/" in call.model_name else f"models/{call.model_name}"
        method = "streamGenerateContent?alt=sse" if call.stream else "generateContent"
        if self._is_vertex:
            publisher = "" if "/" in call.model_name else "publishers/google/"
            return f"{self._base_path}/{publisher}{model}:{method}"
        return f"{self._base_path}/{self._version}/{model}:{method}"


def _request(call: ProviderCall) -> dict[str, object]:
    conversation = read_conversation(call.messages)
    are_needed = needs_signatures(call.model_name)
    contents = []
    for turn in conversation.turns:
        parts = write_list(_parts(turn, needs_signatures=are_needed))
        role = "model" if isinstance(turn, ModelTurn) else "user"
        contents.append(msgspec.json.encode({"role": role, "parts": parts}))
    request: dict[str, object] = {
        "contents": joined(contents),
        "generationConfig": _generation(call) | _thinking(call),
    }
    if conversation.system:
        request["systemInstruction"] = {"parts": write_list(map(_text_part, conversation.system))}
    tools = call.tools.parsed
    if tools is not None:
        declarations = write_list(map(_declaration, tools.functions))
        request["tools"] = [{"functionDeclarations": declarations}]
        allowed = {} if tools.forced is None else {"allowedFunctionNames": [tools.forced]}
        request["toolConfig"] = {"functionCallingConfig": {"mode": _TOOL_MODES[tools.mode], **allowed}}
    return request


def _parts(turn: Turn, *, needs_signatures: bool) -> Iterator[dict[str, object]]:
    """Yields the parts of a turn. Tool results are a turn of their own, with exactly one result per call."""
    if isinstance(turn, ResultsTurn):
        for result in turn.results:
            response = {"id": result.call_id, "name": result.name, "response": {"output": result.text}}
            yield {"functionResponse": response}
        return
    yield from map(_text_part, turn.texts)
    if isinstance(turn, ModelTurn):
        signatures = [call.signature or _signature(call.extra) for call in turn.calls]
        # Of calls that were made together only the first is signed; without any, the placeholder stands for each.
        are_signed = any(signatures)
        for number, (call, signature) in enumerate(zip(turn.calls, signatures, strict=True)):
            is_needed = needs_signatures and not (are_signed and number)
            yield _call_part(call, signature or (NO_SIGNATURE if is_needed else ""))


def _text_part(text: Text) -> dict[str, object]:
    return {"text": text.json}


def _call_part(call: PastCall, signature: str) -> dict[str, object]:
    part: dict[str, object] = {"functionCall": {"id": call.call_id, "name": call.name, "args": call.arguments}}
    if signature:
        part["thoughtSignature"] = signature
    return part


class _Google(msgspec.Struct):
    thought_signature: str = ""


class _Extra(msgspec.Struct):
    google: _Google = msgspec.field(default_factory=_Google)


def _signature(extra: Raw) -> str:
    """Returns the thought signature as clients of Google's OpenAI-compatible API send it back."""
    try:
        return msgspec.json.decode(extra, type=_Extra).google.thought_signature
    except (msgspec.DecodeError, RecursionError):
        return ""


def _generation(call: ProviderCall) -> dict[str, object]:
    parameters = call.parameters.known
    wanted = parameters.response_format
    generation: dict[str, object] = {
        "maxOutputTokens": call.max_tokens if call.is_limit_told else None,
        "temperature": parameters.temperature,
        "topP": parameters.top_p,
        "topK": parameters.top_k,
        "stopSequences": parameters.stops or None,
        "seed": None if parameters.seed is None else parameters.seed % _SEEDS,
        "presencePenalty": parameters.presence_penalty,
        "frequencyPenalty": parameters.frequency_penalty,
        "responseMimeType": None if wanted.type == "text" else "application/json",
        "responseJsonSchema": None if wanted.answer_schema is None else schemas.GEMINI.fit(wanted.answer_schema),
    }
    return {name: value for name, value in generation.items() if value is not None}


def _thinking(call: ProviderCall) -> dict[str, object]:
    """Returns the level, or the number of tokens, that is nearest to what the client asks for; records what differs."""
    known, abilities = call.parameters.known, call.takes
    wanted, tokens = known.wanted_effort, None if known.reasoning is None else known.reasoning.max_tokens
    effort = None if wanted is None else abilities.nearest_effort(wanted)
    if wanted is None or effort is None:
        call.ignore(_EFFORT_NAMES)
        return {}
    if abilities.thinking == "budget":
        budget = EFFORT_TOKENS[effort] if tokens is None or effort == "none" else min(tokens, MOST_BUDGET_TOKENS)
        config: dict[str, object] = {"thinkingBudget": budget}
        used = str(budget)
    else:
        config, used = {"thinkingLevel": effort.upper()}, f"reasoning_effort {effort}"
    if known.reasoning_effort is None:
        if used != str(tokens):
            call.note("reasoning.max_tokens", f"{used} instead of {tokens}")
    elif effort != wanted:
        call.note("reasoning_effort", f"{effort} instead of {wanted}")
    return {"thinkingConfig": config}


def _not_sent(parameters: Parameters, ours: Mapping[str, object], sent: Mapping[str, object]) -> Iterator[str]:
    """Yields the parameters that have no equivalent, or another value in the route."""
    for name in parameters.fields:
        field = "thinkingConfig" if name in _EFFORT_NAMES else _GENERATION_FIELDS.get(name, "")
        if name in _EFFORT_NAMES and field not in ours:
            # Named already.
            continue
        if name == "parallel_tool_calls" or (name == "response_format" and field not in ours):
            continue
        if field not in ours or sent[field] != ours[field]:
            yield name


def _declaration(function: Function) -> dict[str, object]:
    declaration: dict[str, object] = {"name": function.name}
    if function.description:
        declaration["description"] = function.description
    if function.has_parameters:
        declaration["parametersJsonSchema"] = schemas.GEMINI.fit(function.parameters)
    return declaration

"""Writes requests of the Responses API."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.router.providers.abilities import Abilities
from services.router.providers.base import ProviderCall, as_object
from services.router.providers.errors.lessons import ENCRYPTED, SUMMARY
from services.router.providers.openai.custom_tools import describe
from services.router.providers.responses.past_items import write_items
from services.router.providers.translation.conversion import merged, write_list
from services.router.schema.parameters import Parameters
from services.router.schema.tools import Function, Mode, Tools

# The API refuses a lower limit; our own count ends the answer then.
LEAST_OUTPUT_TOKENS: Final = 16
# Sent as they are.
_SAME: Final = ("temperature", "top_p")
# Those that have another place, or that tools have.
_TRANSLATED: Final = {"reasoning_effort", "verbosity", "response_format", "parallel_tool_calls"}
# What the route adds, by its name in chat completions.
_PLACES: Final = {
    "reasoning_effort": ("reasoning", "effort"),
    "verbosity": ("text", "verbosity"),
    "max_tokens": ("max_output_tokens",),
    "max_completion_tokens": ("max_output_tokens",),
}
# What it may add for chat completions alone.
_CHAT_ONLY: Final = frozenset(
    (
        *("seed", "stop", "n", "logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "prediction"),
        *("modalities", "audio", "web_search_options", "functions", "function_call", "response_format"),
    )
)
# A function without parameters, also where they must be checked.
_NO_PARAMETERS: Final = Raw(b'{"type":"object","properties":{},"required":[],"additionalProperties":false}')

_formats = msgspec.json.Decoder(dict[str, Raw])


def write_request(
    call: ProviderCall, extra: Mapping[str, object], cache_key: str, *, has_phases: bool, takes_back: bool
) -> bytes:
    """Returns the body of a request, and names in the call what it does not have. `extra` is what the route adds."""
    abilities = call.takes
    request: dict[str, object] = {
        "model": call.model_name,
        "input": write_items(call.messages, abilities, call.tools.custom, has_phases=has_phases),
    }
    if call.is_limit_told:
        request["max_output_tokens"] = max(call.max_tokens, LEAST_OUTPUT_TOKENS)
    request |= {name: call.parameters.fields[name] for name in _SAME if name in call.parameters.fields}
    request |= _tool_fields(call.tools, call.parameters)
    request |= {name: value for name, value in _nested(call, abilities).items() if value}
    if cache_key:
        request["prompt_cache_key"] = cache_key
    if takes_back and (call.tools.json or call.keeps_thoughts) and abilities.efforts != ():
        request |= {} if ENCRYPTED in abilities.refused else {"include": [ENCRYPTED]}
    sent = merged(request, _translated(extra))
    call.ignore(_not_sent(call.parameters, request, sent))
    # The API stores what it is asked for 30 days, unless it is told not to; nothing in the routes may override that.
    sent["store"] = False
    if call.stream:
        sent["stream"] = True
    return msgspec.json.encode(sent)


def _nested(call: ProviderCall, abilities: Abilities) -> dict[str, dict[str, object]]:
    fields = call.parameters.fields
    reasoning: dict[str, object] = {}
    if "reasoning_effort" in fields:
        reasoning["effort"] = fields["reasoning_effort"]
    if call.keeps_thoughts and abilities.efforts != () and SUMMARY not in abilities.refused:
        reasoning["summary"] = "auto"
    text: dict[str, object] = {}
    if (answer_format := _format(call.parameters)) is not None:
        text["format"] = answer_format
    if "verbosity" in fields:
        text["verbosity"] = fields["verbosity"]
    return {"reasoning": reasoning, "text": text}


def _format(parameters: Parameters) -> Mapping[str, object] | None:
    kind = parameters.known.response_format.type
    if kind == "text":
        return None
    if kind != "json_schema":
        return {"type": kind}
    described = _formats.decode(parameters.fields["response_format"]).get("json_schema", Raw(b"{}"))
    # Not checked unless the client says so, as with chat completions.
    return {"type": kind, "strict": False, **_formats.decode(described)}


def _tool_fields(tools: Tools, parameters: Parameters) -> dict[str, object]:
    parsed = tools.parsed
    if parsed is None:
        return {}
    choice: object = parsed.mode.value
    if parsed.forced is not None:
        choice = _named(parsed.forced, tools)
    elif parsed.among:
        names = [_named(function.name, tools) for function in parsed.functions]
        choice = {"type": "allowed_tools", "mode": parsed.mode.value, "tools": names}
    fields: dict[str, object] = {
        "tools": write_list(_definition(each, tools) for each in parsed.among or parsed.functions)
    }
    if choice != Mode.AUTO.value:
        fields["tool_choice"] = choice
    if "parallel_tool_calls" in parameters.fields:
        fields["parallel_tool_calls"] = parameters.fields["parallel_tool_calls"]
    return fields


def _named(name: str, tools: Tools) -> dict[str, object]:
    return {"type": "custom" if name in tools.custom else "function", "name": name}


def _definition(function: Function, tools: Tools) -> dict[str, object]:
    if (form := tools.custom.get(function.name)) is not None:
        custom = {**_named(function.name, tools), **describe(form)}
        if form.definition is not None:
            custom["format"] = {"type": "grammar", "syntax": form.syntax, "definition": form.definition}
        return custom
    definition: dict[str, object] = {
        "type": "function",
        "name": function.name,
        "parameters": function.parameters if function.has_parameters else _NO_PARAMETERS,
        # Where it is left out, the API makes all parameters necessary; chat completions do not.
        "strict": bool(function.strict),
    }
    if function.description:
        definition["description"] = function.description
    return definition


def _translated(extra: Mapping[str, object]) -> dict[str, object]:
    """Returns what the route adds in the words of this API."""
    translated: dict[str, object] = {}
    for name, value in extra.items():
        if name in _CHAT_ONLY:
            continue
        *outer, inner = _PLACES.get(name, (name,))
        field = {outer[0]: {inner: value}} if outer else {inner: value}
        translated = merged(translated, field)
    return translated


def _not_sent(parameters: Parameters, ours: Mapping[str, Any], sent: Mapping[str, Any]) -> list[str]:
    """Returns the parameters that the API does not have, or that the route sets itself in the API's own words."""
    changed = []
    for name in ("reasoning_effort", "verbosity"):
        place, field = _PLACES[name]
        if as_object(sent.get(place)).get(field) != as_object(ours.get(place)).get(field):
            changed.append(name)
    return [name for name in parameters.fields if name in changed or name not in _TRANSLATED | set(_SAME)]

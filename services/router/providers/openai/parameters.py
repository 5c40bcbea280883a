"""The parameters of a chat as a model of an OpenAI-compatible server takes them."""

from typing import Final

import msgspec
from msgspec import Raw

from services.router.providers.abilities import SAMPLING, UNKNOWN
from services.router.providers.base import ProviderCall
from services.router.schema.parameters import Parameters

_EFFORT: Final = "reasoning_effort"
_NONE: Final = "none"


def adapt(
    call: ProviderCall, parameters: Parameters, *, takes_reasoning: bool, reasons_beside_tools: bool = False
) -> Parameters:
    """Returns the parameters that the model takes, and notes in the call what is different from the client's.
    `reasons_beside_tools` if the call takes a way on which the model does so in any case."""
    abilities, fields = call.takes, parameters.fields
    if abilities is UNKNOWN and "reasoning" not in fields:
        return parameters
    changed: dict[str, Raw] = {}
    left_out = set(abilities.refused & fields.keys())
    effort = wanted = parameters.known.wanted_effort if {_EFFORT, "reasoning"} & fields.keys() else None
    has_tools = bool(call.tools.json) and not reasons_beside_tools
    if has_tools and abilities.tools_without_reasoning and _NONE in (abilities.efforts or (_NONE,)):
        effort = _NONE
    elif wanted is not None and "reasoning" in fields and takes_reasoning:
        effort = parameters.known.reasoning_effort
    elif wanted is not None:
        effort = abilities.nearest_effort(wanted)
    if effort not in (None, parameters.known.reasoning_effort) and _EFFORT not in abilities.refused:
        changed[_EFFORT] = Raw(msgspec.json.encode(effort))
    if effort is None:
        left_out |= {_EFFORT} & fields.keys()
    if "reasoning" in fields and not takes_reasoning:
        left_out.add("reasoning")
    reasons = effort not in (None, _NONE)
    if abilities.sampling == "never" or (abilities.sampling == "without_reasoning" and reasons):
        left_out |= SAMPLING & fields.keys()
    call.ignore(sorted(left_out - {"reasoning"}))
    if effort is not None and effort != parameters.known.reasoning_effort:
        _note_effort(call, parameters, effort)
    return parameters.without(left_out).with_fields(changed)


def _note_effort(call: ProviderCall, parameters: Parameters, effort: str) -> None:
    known = parameters.known
    if known.reasoning_effort is not None:
        call.note(_EFFORT, f"{effort} instead of {known.reasoning_effort}")
    elif known.reasoning is not None and known.reasoning.max_tokens is not None:
        call.note("reasoning.max_tokens", f"{_EFFORT} {effort} instead of {known.reasoning.max_tokens}")
    else:
        call.note(_EFFORT, f"{effort} beside tools")

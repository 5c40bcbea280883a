"""Chooses how much a Claude model thinks, where it may."""

from collections.abc import Mapping
from typing import Any, Final

from services.router.providers.abilities import EFFORTS, Abilities
from services.router.providers.anthropic.past_thinking import begins_with_thought
from services.router.providers.base import ProviderCall, as_count, as_object
from services.router.providers.translation.turns import Conversation, ModelTurn, ResultsTurn, SystemTurn
from services.router.schema.parameters import EFFORT_TOKENS

# The types of `thinking` that turn it on.
THINKING_ON: Final = ("enabled", "adaptive")
_THINKING_OFF: Final = ("disabled", "between_tools")
# The API refuses a smaller budget.
_LEAST_BUDGET_TOKENS: Final = 1024
_NONE: Final = "none"
_EFFORT: Final = "reasoning_effort"


def choose_thinking(
    call: ProviderCall, abilities: Abilities, *, has_tools: bool
) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the effort and the thinking that are nearest to what the client asks for, and records what differs."""
    known = call.parameters.known
    wanted, tokens = known.wanted_effort, None if known.reasoning is None else known.reasoning.max_tokens
    if wanted is None:
        return {}, {}
    if wanted == _NONE and abilities.thinks != "always":
        if abilities.thinks == "by_default":
            return {}, {"type": abilities.thinking_off}
        if abilities.thinking or abilities.efforts == ():
            # It does not think unless the request turns it on.
            return {}, {}
        call.ignore((_EFFORT,))
        return {}, {}
    if abilities.thinking == "budget" and (tokens is not None or not abilities.efforts):
        return {}, _budget(call, wanted, tokens, has_tools=has_tools)
    effort = abilities.nearest_effort(wanted)
    if effort is None:
        call.ignore((_EFFORT, "reasoning"))
        return {}, {}
    if tokens is not None and known.reasoning_effort is None:
        call.note("reasoning.max_tokens", f"{_EFFORT} {effort} instead of {tokens}")
    elif effort != wanted:
        call.note(_EFFORT, f"{effort} instead of {wanted}")
    # Beside tools only the route turns it on.
    is_turned_on = abilities.thinking == "adaptive" and abilities.thinks == "on_request" and not has_tools
    return {"effort": effort}, {"type": "adaptive"} if is_turned_on else {}


def _budget(call: ProviderCall, effort: str, tokens: int | None, *, has_tools: bool) -> dict[str, object]:
    wanted = EFFORT_TOKENS.get(effort, max(EFFORT_TOKENS.values())) if tokens is None else tokens
    # Thinking counts as output, so half of it is left for the answer.
    budget = min(max(wanted, _LEAST_BUDGET_TOKENS), call.max_tokens // 2)
    if has_tools or effort not in EFFORTS or budget < _LEAST_BUDGET_TOKENS:
        call.ignore((_EFFORT, "reasoning"))
        return {}
    if tokens is not None and budget != tokens:
        call.note("reasoning.max_tokens", f"{budget} instead of {tokens}")
    return {"type": "enabled", "budget_tokens": budget}


def fit_thinking(request: Mapping[str, Any], abilities: Abilities, conversation: Conversation) -> dict[str, Any]:
    """Returns a request whose `thinking` the model takes: in the way that it knows, or not at all."""
    fitted = dict(request)
    thinking = as_object(fitted.get("thinking"))
    kind = thinking.get("type")
    if kind == "enabled" and abilities.thinking == "adaptive":
        fitted["thinking"] = {name: value for name, value in thinking.items() if name != "budget_tokens"}
        fitted["thinking"]["type"] = kind = "adaptive"
    turns_off = kind in _THINKING_OFF
    if turns_off and abilities.thinks == "always":
        del fitted["thinking"]
    elif turns_off and abilities.thinks == "by_default":
        fitted["thinking"] = {**thinking, "type": abilities.thinking_off}
    elif kind in THINKING_ON and not _may_think(fitted, abilities, conversation):
        del fitted["thinking"]
    return fitted


def may_have_thoughts(wanted: Mapping[str, Any], fitted: Mapping[str, Any], abilities: Abilities) -> bool:
    """Returns whether the model gets its earlier thoughts: not if thinking is off, or not allowed in this request."""
    if "thinking" in fitted:
        return as_object(fitted["thinking"]).get("type") not in _THINKING_OFF
    return "thinking" not in wanted or abilities.thinks != "on_request"


def _may_think(request: Mapping[str, Any], abilities: Abilities, conversation: Conversation) -> bool:
    """Returns whether thinking may stay enabled. With a budget it needs the thoughts before the last call, or before
    the beginning of an answer, and most models cannot be made to call a tool meanwhile. Its budget must also leave room
    for the answer."""
    is_forced = as_object(request.get("tool_choice")).get("type") in ("any", "tool")
    thinking = as_object(request["thinking"])
    # A tool result may be followed by user text in the same turn.
    turns = [turn for turn in conversation.turns[-3:] if not isinstance(turn, SystemTurn)]
    is_after_call = any(isinstance(turn, ResultsTurn) for turn in turns[-2:])
    lacks_thoughts = is_after_call and thinking.get("type") != "adaptive" and not begins_with_thought(conversation)
    # The route's, or the client's; without one, the model decides.
    budget_tokens = as_count(thinking.get("budget_tokens")) or 0
    is_excluded = (is_forced and not abilities.forced_tools_thinking) or lacks_thoughts
    return not (is_excluded or isinstance(turns[-1], ModelTurn)) and budget_tokens < request["max_tokens"]

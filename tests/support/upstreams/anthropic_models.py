"""Claude's models, which refuse what their vendor's do, in the words that users quote.

can1357/oh-my-pi#12939 (forced tools), smallmain/vscode-unify-chat-provider#249 (the last message),
NousResearch/hermes-agent#11137 (budgets), and the vendor's pages on what is new in each model.
"""

from typing import Any

from tests.support.upstreams.anthropic import AnthropicUpstream, error
from tests.support.upstreams.openai import Recorded, Reply
from tests.support.upstreams.rules import RuleBroken, require

# By the beginning of a name, the first that fits: efforts, types of `thinking`, whether calls can be forced, and
# whether it goes on with a last message of the assistant.
_ADAPTIVE = ("adaptive", "disabled")
_MODELS: dict[str, tuple[str, tuple[str, ...], bool, bool]] = {
    "claude-sonnet-4-5": ("", ("enabled", "disabled"), True, True),
    "claude-opus-4-6": ("low medium high max", ("enabled", *_ADAPTIVE), True, False),
    "claude-opus-4-7": ("low medium high xhigh max", _ADAPTIVE, True, False),
    "claude-opus-5-5": ("low medium high xhigh max", ("adaptive",), False, False),
    "claude-opus-5": ("low medium high xhigh max", _ADAPTIVE, True, False),
    "claude-sonnet-5-5": ("low medium high xhigh max", ("adaptive", "between_tools"), False, False),
    # A name that tells nothing, as of a proxy.
    "house-model": ("low medium high max", ("adaptive",), False, False),
}


class AnthropicModels(AnthropicUpstream):
    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            _check(recorded.json)
        except RuleBroken as broken:
            return error(broken.status, "invalid_request_error", str(broken))
        return super().refusal_of(recorded)


def _check(request: dict[str, Any]) -> None:
    rules = next((rules for name, rules in _MODELS.items() if request["model"].startswith(name)), None)
    if rules is None:
        return
    efforts, thinking_types, takes_forced, takes_prefill = rules
    effort = request.get("output_config", {}).get("effort")
    require(effort is None or efforts, "This model does not support the effort parameter.")
    listed = f'output_config.effort "{effort}" is not supported by model x; supported values: [{efforts}]'
    require(effort is None or effort in efforts.split(), listed)
    kind = request.get("thinking", {}).get("type", thinking_types[0])
    require(
        kind in thinking_types,
        f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
    )
    is_forced = request.get("tool_choice", {}).get("type") in ("any", "tool")
    require(takes_forced or not is_forced, 'tool_choice: type "tool" and "any" are not supported for this model.')
    require(
        takes_prefill or request["messages"][-1]["role"] != "assistant",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )
    is_sampled = {"temperature", "top_p"} & request.keys()
    require(takes_prefill or not is_sampled, "`temperature` is deprecated for this model.")

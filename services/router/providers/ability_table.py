"""The models whose abilities are known, by their names; docs/providers.md says from which documents."""

import re
from dataclasses import replace
from functools import cache
from typing import Final, Literal

from services.router.providers.abilities import UNKNOWN, Abilities
from services.router.providers.translation.model_names import plain_name

_LOW_TO_HIGH: Final = ("low", "medium", "high")
_LOW_TO_XHIGH: Final = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX: Final = (*_LOW_TO_XHIGH, "max")


def _openai(
    *efforts: str,
    tools_without_reasoning: bool = False,
    custom_tools: bool = True,
    api: Literal["", "responses"] = "",
) -> Abilities:
    return Abilities(
        efforts=efforts,
        api=api,
        sampling="without_reasoning" if "none" in efforts else "never",
        output_field="max_completion_tokens",
        tools_without_reasoning=tools_without_reasoning,
        custom_tools=custom_tools,
    )


_BUDGETED_CLAUDE: Final = Abilities(efforts=(), thinking="budget")
_CLAUDE_4_6: Final = Abilities(
    efforts=(*_LOW_TO_HIGH, "max"), thinking="adaptive", forced_tools_thinking=True, prefill=False
)
_CLAUDE_4_7: Final = Abilities(
    efforts=_LOW_TO_MAX, thinking="adaptive", forced_tools_thinking=True, prefill=False, sampling="never"
)
_CLAUDE_5: Final = Abilities(
    efforts=_LOW_TO_MAX,
    thinking="adaptive",
    thinks="by_default",
    forced_tools_thinking=True,
    prefill=False,
    sampling="never",
)


_OPUS_5: Final = replace(_CLAUDE_5, system_inside=True)
_ALWAYS_THINKING: Final = replace(_OPUS_5, thinks="always", thinking_off="")
_UNFORCED: Final = replace(_ALWAYS_THINKING, forced_tools=False, forced_tools_thinking=False)
_SONNET_5_5: Final = replace(_OPUS_5, thinking_off="between_tools", forced_tools=False, forced_tools_thinking=False)


def _gemini(*efforts: str, thinking: Literal["level", "budget"] = "level") -> Abilities:
    return Abilities(efforts=efforts, thinking=thinking, thinks="by_default")


_Rows = tuple[tuple[str, Abilities], ...]
_OPENAI: Final[_Rows] = (
    (r"o\d-pro", _openai(*_LOW_TO_HIGH, custom_tools=False, api="responses")),
    (r"o[134](-|$)", _openai(*_LOW_TO_HIGH, custom_tools=False)),
    (r"gpt-5(\.\d)?-chat", Abilities(efforts=(), output_field="max_completion_tokens")),
    (r"gpt-5-pro", _openai("high", api="responses")),
    (r"gpt-5\.[2-5]-pro", _openai("medium", "high", "xhigh", api="responses")),
    (r"gpt-5(\.1)?-codex(?!-max)", _openai(*_LOW_TO_HIGH, api="responses")),
    (r"gpt-5\.\d-codex", _openai(*_LOW_TO_XHIGH, api="responses")),
    (r"gpt-5(?!\.)", _openai("minimal", *_LOW_TO_HIGH)),
    (r"gpt-5\.1", _openai("none", *_LOW_TO_HIGH)),
    (r"gpt-5\.[23]", _openai("none", *_LOW_TO_XHIGH)),
    (r"gpt-5\.[45]", _openai("none", *_LOW_TO_XHIGH, tools_without_reasoning=True)),
    (r"gpt-6(\.\d)?-astra|gpt-6\.1-sol", _openai(*_LOW_TO_MAX, tools_without_reasoning=True)),
    (r"gpt-(5\.|[6-9])", _openai("none", *_LOW_TO_MAX, tools_without_reasoning=True)),
    (r"deepseek-v4", Abilities(efforts=("none", "low", "high", "max"))),
)
# By kind of provider: patterns of the last part of a model's name, of which the first that fits counts.
_TABLE: Final[dict[str, _Rows]] = {
    "openai": _OPENAI,
    "responses": _OPENAI,
    "anthropic": (
        (r"claude-opus-4-5", Abilities(efforts=_LOW_TO_HIGH, thinking="budget")),
        (r"claude-[a-z]+-4-6", _CLAUDE_4_6),
        (r"claude-[a-z]+-4-7", _CLAUDE_4_7),
        (r"claude-opus-4-[89]", replace(_CLAUDE_4_7, system_inside=True)),
        (r"claude-([a-z]+-4|3)(-|$)|claude-[a-z]+-4$", _BUDGETED_CLAUDE),
        (r"claude-(fable|mythos)-5(-\d{8}|$)", _ALWAYS_THINKING),
        (r"claude-(fable|mythos)-\d", _UNFORCED),
        (r"claude-opus-5(-\d{8}|$)", _OPUS_5),
        (r"claude-opus-\d", _UNFORCED),
        (r"claude-sonnet-5(-\d{8}|$)", _CLAUDE_5),
        (r"claude-sonnet-\d", _SONNET_5_5),
        (r"claude-haiku-5(-\d{8}|$)", _CLAUDE_5),
        (r"claude-[a-z]+-\d", _OPUS_5),
        (r"", Abilities(efforts=_LOW_TO_HIGH)),
    ),
    "gemini": (
        (r"gemini-(1|2(?!\.5))", Abilities(efforts=())),
        (r"gemini-2\.5-pro", _gemini("minimal", *_LOW_TO_HIGH, thinking="budget")),
        (r"gemini-2\.5", _gemini("none", "minimal", *_LOW_TO_HIGH, thinking="budget")),
        (r"gemini-3-pro", _gemini("low", "high")),
        (r"gemini-3(\.[0-6])?-flash|gemini-3\.\d-flash-lite", _gemini("minimal", *_LOW_TO_HIGH)),
        (r"", _gemini(*_LOW_TO_HIGH)),
    ),
}
_PATTERNS: Final = {
    kind: tuple((re.compile(pattern), abilities) for pattern, abilities in rows) for kind, rows in _TABLE.items()
}


@cache
def abilities_of(kind: str, model_name: str) -> Abilities:
    """Returns what a model takes by its name, which is looked for in the table only once."""
    name = plain_name(model_name)
    found = (abilities for pattern, abilities in _PATTERNS.get(kind, ()) if pattern.match(name))
    return next(found, UNKNOWN)

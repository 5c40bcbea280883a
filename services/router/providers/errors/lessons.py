"""Learns from a provider's refusal what a model takes, for all later chats.

Only a refusal in the provider's own fixed words is a lesson: it may quote a client, who must not decide what others
get.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from services.router.providers.abilities import EFFORTS, Abilities
from services.router.providers.errors.error_body import ErrorBody
from services.router.schema.parameters import STEERING

_WORD: Final = re.compile(r"[a-z]+")
# What a model may refuse of the Responses API.
SUMMARY: Final = "reasoning.summary"
ENCRYPTED: Final = "reasoning.encrypted_content"
PHASE: Final = "phase"


class Lesson(NamedTuple):
    """A message, matched from its beginning in lower case, and how it changes what is known of a model's abilities."""

    message: re.Pattern[str]
    change: Callable[[Abilities, re.Match[str]], Abilities]
    # The field that the error names beside the message; empty: any.
    param: str = ""


def learn(abilities: Abilities, refusal: ErrorBody, lessons: Sequence[Lesson]) -> Abilities | None:
    """Returns the abilities as the refusal corrects them, or None if it teaches nothing new."""
    for lesson in lessons:
        found = lesson.message.match(refusal.message)
        if found is not None and lesson.param in ("", refusal.param):
            changed = lesson.change(abilities, found)
            return None if changed == abilities else changed
    return None


def _takes_efforts(abilities: Abilities, found: re.Match[str]) -> Abilities:
    """Takes the efforts that the message lists."""
    words = set(_WORD.findall(found["efforts"]))
    return replace(abilities, efforts=tuple(effort for effort in EFFORTS if effort in words))


def _without_effort(abilities: Abilities, found: re.Match[str]) -> Abilities:
    known = EFFORTS if abilities.efforts is None else abilities.efforts
    return replace(abilities, efforts=tuple(effort for effort in known if effort != found["effort"]))


def _setting(**fields: object) -> Callable[[Abilities, re.Match[str]], Abilities]:
    return lambda abilities, _: replace(abilities, **fields)  # type: ignore[arg-type]


def _refuses(abilities: Abilities, found: re.Match[str]) -> Abilities:
    return replace(abilities, refused=abilities.refused | {found["name"]})


def _refusing(name: str) -> Callable[[Abilities, re.Match[str]], Abilities]:
    return lambda abilities, _: replace(abilities, refused=abilities.refused | {name})


OPENAI: Final = (
    Lesson(
        re.compile(r"['`\"]?custom['`\"]? tools are not supported |invalid value: 'custom'\. supported values are: "),
        _setting(custom_tools=False),
    ),
    Lesson(
        re.compile(
            r"unsupported parameter: 'max_tokens' is not supported with this model\. use 'max_completion_tokens'"
        ),
        _setting(output_field="max_completion_tokens"),
    ),
    Lesson(
        re.compile(r"(unsupported|unknown|unrecognized)[a-z ]{1,32}:? '?max_completion_tokens\b"),
        _setting(output_field="max_tokens"),
    ),
    Lesson(
        re.compile(r"function tools with reasoning_effort are not supported for \S+ in /v1/chat/completions\."),
        _setting(tools_without_reasoning=True),
    ),
    Lesson(
        re.compile(
            r"unsupported value: '[a-z]{1,16}' is not supported with the '[^']*' model\."
            r" supported values are: (?P<efforts>[a-z', ]+)\.?$"
        ),
        _takes_efforts,
        param="reasoning_effort",
    ),
    Lesson(
        re.compile(rf"(unsupported|unknown) (parameter|value): '(?P<name>{'|'.join(sorted(STEERING))})' "),
        _refuses,
    ),
)

# The refusals by which one of OpenAI's APIs names the other, which alone offers the model.
ONE_API: Final = (
    Lesson(
        re.compile(
            r"this model is only supported in v1/responses and not in v1/chat/completions\."
            r"|this is not a chat model and thus not supported in the v1/chat/completions endpoint\."
        ),
        _setting(api="responses"),
    ),
    Lesson(
        re.compile(
            r"azure openai responses api is enabled only for api-version"
            r"|the requested model '[^']*' is not supported with the responses api\."
        ),
        _setting(api="chat"),
    ),
)

# Those of the Responses API whose words differ from those of chat completions.
RESPONSES: Final = (
    Lesson(
        re.compile(
            r"unsupported value: '[a-z]{1,16}' is not supported with the '[^']*' model\."
            r" supported values are: (?P<efforts>[a-z', ]+)\.?$"
        ),
        _takes_efforts,
        param="reasoning",
    ),
    Lesson(re.compile(r"unsupported parameter: 'reasoning\.effort' is not supported "), _setting(efforts=())),
    Lesson(
        re.compile(
            r"your organization must be verified to generate reasoning summaries\."
            r"|unsupported parameter: 'reasoning\.summary' is not supported "
        ),
        _refusing(SUMMARY),
    ),
    Lesson(re.compile(r"encrypted content is not supported with this model\."), _refusing(ENCRYPTED)),
    Lesson(
        re.compile(r"(unsupported|unknown) parameter: '(text\.)?verbosity'|unsupported value: '[a-z]{1,16}' is not "),
        _refusing("verbosity"),
        param="text",
    ),
    Lesson(re.compile(r"unknown parameter: 'input\[[0-9]{1,9}\]\.phase'"), _refusing(PHASE)),
    Lesson(re.compile(r"conflicting authenticated continuation identities"), _setting(past_reasoning="latest")),
)

ANTHROPIC: Final = (
    Lesson(
        re.compile(r'tool_choice: type "tool" and "any" are not supported for this model\.'),
        _setting(forced_tools=False, forced_tools_thinking=False),
    ),
    Lesson(
        re.compile(r"thinking may not be enabled when tool_choice forces tool use\."),
        _setting(forced_tools_thinking=False),
    ),
    Lesson(
        re.compile(r'"thinking\.type\.(disabled|between_tools)" is not supported for this model\.'),
        _setting(thinks="always", thinking_off=""),
    ),
    Lesson(
        re.compile(r'"thinking\.type\.enabled" is not supported for this model\.'),
        _setting(thinking="adaptive"),
    ),
    Lesson(
        re.compile(r"this model does not support assistant message prefill\."),
        _setting(prefill=False),
    ),
    Lesson(
        re.compile(r"this model does not support the effort parameter\."),
        _setting(efforts=()),
    ),
    Lesson(
        re.compile(
            r'output_config\.effort "[a-z]{1,16}" is not supported by model \S+;'
            r" supported values: \[(?P<efforts>[a-z ]+)\]"
        ),
        _takes_efforts,
    ),
    Lesson(
        re.compile(
            r"messages: role 'system' is not supported|failed to deserialize .{0,80}\.role: unknown variant `system`"
        ),
        _setting(system_inside=False),
    ),
    Lesson(
        re.compile(r"`?(temperature|top_p)`? (is deprecated|is not supported|may not be set)"),
        _setting(sampling="never"),
    ),
)

GEMINI: Final = (
    Lesson(
        re.compile(
            r"(unable to submit request because )?thinking[_ ]level (is unsupported: thinking_level_)?"
            r"(?P<effort>minimal|low|medium|high)\b"
        ),
        _without_effort,
    ),
    Lesson(re.compile(r"thinking level is not supported for this model\."), _setting(thinking="budget")),
)

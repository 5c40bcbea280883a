"""Refusals in vendors' own words, as users quote them."""

import msgspec
import pytest

from services.router.providers.abilities import UNKNOWN, Abilities
from services.router.providers.errors.error_body import read_error_body
from services.router.providers.errors.lessons import ANTHROPIC, GEMINI, ONE_API, OPENAI, RESPONSES, Lesson, learn


def learned(lessons: tuple[Lesson, ...], message: str, known: Abilities = UNKNOWN, param: str = "") -> Abilities | None:
    body = read_error_body(msgspec.json.encode({"error": {"message": message, "param": param}}))
    return learn(known, body, lessons)


@pytest.mark.parametrize(
    ("lessons", "message", "changed"),
    [
        (OPENAI, "Unknown parameter: 'max_completion_tokens'.", Abilities(output_field="max_tokens")),
        (
            OPENAI,
            "Unrecognized request argument supplied: max_completion_tokens",
            Abilities(output_field="max_tokens"),
        ),
        (
            OPENAI,
            "Unsupported parameter: 'verbosity' is not supported with this model.",
            Abilities(refused=frozenset(("verbosity",))),
        ),
        (ANTHROPIC, '"thinking.type.enabled" is not supported for this model. Use x.', Abilities(thinking="adaptive")),
        (ANTHROPIC, "This model does not support the effort parameter.", Abilities(efforts=())),
        (ANTHROPIC, "`temperature` is deprecated for this model.", Abilities(sampling="never")),
        (
            GEMINI,
            "Unable to submit request because thinking_level MEDIUM is not supported by this model. Learn more: x",
            Abilities(efforts=("none", "minimal", "low", "high", "xhigh", "max")),
        ),
        (GEMINI, "Thinking level is not supported for this model.", Abilities(thinking="budget")),
        (
            ONE_API,
            "This model is only supported in v1/responses and not in v1/chat/completions.",
            Abilities(api="responses"),
        ),
        (
            ONE_API,
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean x?",
            Abilities(api="responses"),
        ),
        (
            ONE_API,
            "The requested model 'gpt-4o-search-preview' is not supported with the Responses API.",
            Abilities(api="chat"),
        ),
        (RESPONSES, "Unknown parameter: 'input[3].phase'.", Abilities(refused=frozenset(("phase",)))),
    ],
)
def test_refusal_changes_what_is_known(lessons: tuple[Lesson, ...], message: str, changed: Abilities) -> None:
    assert learned(lessons, message) == changed
    # What is known already is nothing new.
    assert learned(lessons, message, changed) is None


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value in tools[0]: Unknown parameter: 'max_completion_tokens'.",
        "Unsupported parameter: 'tools' is not supported with this model.",
        "messages.0: This model does not support the effort parameter.",
        "",
    ],
)
def test_other_messages_teach_nothing(message: str) -> None:
    assert [learned(lessons, message) for lessons in (OPENAI, ANTHROPIC, GEMINI)] == [None, None, None]


def test_list_of_values_is_that_of_the_field_which_the_error_names() -> None:
    message = (
        "Unsupported value: 'low' is not supported with the 'x' model. Supported values are: 'medium', and 'high'."
    )
    assert learned(OPENAI, message, param="verbosity") is None
    assert learned(OPENAI, message, param="reasoning_effort") == Abilities(efforts=("medium", "high"))
    assert learned(RESPONSES, message, param="reasoning.effort") == Abilities(efforts=("medium", "high"))
    assert learned(RESPONSES, message, param="text.verbosity") == Abilities(refused=frozenset(("verbosity",)))
    assert learned(RESPONSES, message, param="input") is None

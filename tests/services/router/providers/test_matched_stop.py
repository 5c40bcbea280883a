"""The stop that was met, from providers that tell it: Anthropic, and vLLM and SGLang in fields of their own."""

import json
from typing import Any

import pytest
from msgspec import Raw

from services.router.providers.answer import ProviderAnswer
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.matched_stop import finish_reason_of, stop_sequence_of
from services.router.providers.openai.answer import CompletionAnswer


def ended(answer: ProviderAnswer, *events: dict[str, Any], whole: dict[str, Any] | None = None) -> tuple[str, str]:
    """Returns the finish reason of an answer, and the stop that was met."""
    answer.begin_piece()
    for event in events:
        answer.read_event(json.dumps(event).encode())
    if whole is not None:
        answer.read_whole(json.dumps(whole).encode())
    reason = answer.pieces[-1].finish_reason
    return str(reason), stop_sequence_of(reason)


@pytest.mark.parametrize("sequence", ["END", "\n", "雨"])
def test_anthropic_tells_which_stop_was_met(sequence: str) -> None:
    told = {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    assert ended(MessageAnswer(), {"type": "message_delta", "delta": told}) == ("stop", sequence)
    assert ended(MessageAnswer(), whole={"type": "message", "content": [], **told}) == ("stop", sequence)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"stop_reason": "end_turn", "stop_sequence": None}, "stop"),
        ({"stop_reason": "stop_sequence"}, "stop"),
        ({"stop_reason": "max_tokens", "stop_sequence": None}, "length"),
    ],
)
def test_anthropic_may_tell_none(told: dict[str, Any], reason: str) -> None:
    assert ended(MessageAnswer(), {"type": "message_delta", "delta": told}) == (reason, "")


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize(
    ("matched", "sequence"), [("END", "END"), (128009, ""), (None, ""), ({"odd": []}, ""), (["END"], "")]
)
def test_vllm_and_sglang_tell_a_text_or_the_number_of_a_token(field: str, matched: object, sequence: str) -> None:
    choice = {"index": 0, "finish_reason": "stop", field: matched}
    assert ended(CompletionAnswer(), {"choices": [{**choice, "delta": {"content": "So"}}]}) == ("stop", sequence)
    assert ended(CompletionAnswer(), whole={"choices": [{**choice, "message": {"content": "So"}}]}) == (
        "stop",
        sequence,
    )


def test_only_an_answer_that_stopped_has_met_one() -> None:
    assert stop_sequence_of(finish_reason_of("length", Raw(b'"END"'))) == ""
    assert stop_sequence_of(None) == ""

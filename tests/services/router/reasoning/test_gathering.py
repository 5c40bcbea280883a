import json
from typing import Any

import pytest
from msgspec import Raw

from services.router.reasoning.gathering import GatheredThoughts
from services.router.reasoning.sealed_ids import MOST_CHARACTERS
from services.router.schema.thoughts import CallSignature, ReasoningDetail, ReasoningText


def details(*given: Any) -> list[Raw]:
    return [Raw(json.dumps(detail).encode()) for detail in given]


def objects(thoughts: Any) -> list[Any]:
    assert all(isinstance(thought, ReasoningDetail) for thought in thoughts)
    return [json.loads(thought.object_json) for thought in thoughts]


def test_texts_are_joined_and_taken_once() -> None:
    gathered = GatheredThoughts()
    assert gathered.take() == ()
    gathered.add_text("It ", "reasoning_content")
    gathered.add_text("rains.", "reasoning_content")
    gathered.add(CallSignature("s"))
    assert gathered.take() == [ReasoningText("It rains.", "reasoning_content"), CallSignature("s")]
    assert gathered.take() == ()


def test_details_of_a_stream_are_joined_as_they_belong_together() -> None:
    gathered = GatheredThoughts()
    gathered.add_text("so", "reasoning")
    text = {"type": "reasoning.text", "index": 0, "format": "x", "signature": None}
    gathered.add_details(details({**text, "text": "It "}))
    gathered.add_details(details({**text, "text": "rains."}, {**text, "text": "", "signature": "s"}))
    gathered.add_details(details({**text, "index": 1, "text": "Then."}))
    gathered.add_details(
        details({"type": "reasoning.encrypted", "data": "d1"}, {"type": "reasoning.encrypted", "data": "d2"})
    )
    assert objects(gathered.take()) == [
        {**text, "text": "It rains.", "signature": "s"},
        {**text, "index": 1, "text": "Then."},
        {"type": "reasoning.encrypted", "data": "d1"},
        {"type": "reasoning.encrypted", "data": "d2"},
    ]


@pytest.mark.parametrize("strange", [b"7", b"null", b'"x"', b'{"type":7}', b'{"text":[]}', b"[" * 5000 + b"]" * 5000])
def test_strange_details_are_left_out(strange: bytes) -> None:
    gathered = GatheredThoughts()
    gathered.add_details([Raw(strange), *details({"type": "reasoning.encrypted", "data": "d"})])
    assert objects(gathered.take()) == [{"type": "reasoning.encrypted", "data": "d"}]


def test_what_is_too_long_is_not_kept_and_what_follows_is() -> None:
    gathered = GatheredThoughts()
    for _ in range(10):
        gathered.add_text("x" * (MOST_CHARACTERS // 4), "reasoning")
    assert gathered.take() == []
    gathered.add_text("short", "reasoning")
    assert gathered.take() == [ReasoningText("short", "reasoning")]

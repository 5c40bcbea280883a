"""What clients keep of a model's thoughts goes to a router as it came, and nothing else does."""

from typing import Any

import pytest

from edge.wire.sealed_reasoning import REASONING_FORMAT, joined_data, past_reasoning
from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.reasoning.set_aside import FORMAT
from services.router.schema.thoughts import ReasoningText

SEALS = ReasoningSeals({7: bytes(32)})


def test_seals_of_one_answer_are_one_text_that_a_router_opens() -> None:
    first, second = (SEALS.seal_data("f", [ReasoningText(text, "reasoning")], "acct") for text in ("So ", "it is."))
    fields: dict[str, Any] = past_reasoning([joined_data("", first), second])
    [detail] = fields["reasoning_details"]
    assert detail["format"] == REASONING_FORMAT == FORMAT
    opened = SEALS.open_data(detail["data"], "acct")
    assert opened is not None
    assert [thought.text for thought in opened.thoughts if isinstance(thought, ReasoningText)] == ["So ", "it is."]
    assert SEALS.open_data(detail["data"], "other") is None


@pytest.mark.parametrize("data", ["", "none", "gAAAAABn-x_=", "1_a ", "0_a", "1_a.", "1_", "1_ä"])
def test_what_was_sealed_elsewhere_is_dropped(data: str) -> None:
    assert past_reasoning([data]) == {}

"""Passages in the order of their worth, as many as fit."""

from services.router.grounding.blocks import PASSAGES
from services.router.grounding.documents.ranking import PASSAGES_MOST, rank_passages
from services.router.grounding.records import Passage
from services.router.prompts.tokens import count


def passage(page: int, text: str) -> Passage:
    return Passage("att_1", "manual.pdf", page, text)


def test_no_more_passages_are_given_than_fit() -> None:
    passages = [passage(number, f'Pump number "{number}" is <red>. ' * 10) for number in range(6)]
    found = rank_passages(passages, {"pump": 1.0}, 500)
    assert 0 < len(found) < len(passages)
    assert count(PASSAGES.render(found)) <= 500
    assert len(rank_passages(2 * passages, {"pump": 1.0}, 100_000)) == PASSAGES_MOST


def test_passages_that_say_much_less_of_the_question_are_left_out() -> None:
    best, other = passage(2, "The pump is broken."), passage(1, "The pump was inspected.")
    assert rank_passages([other, best], {"pump": 0.1, "broken": 2.0}, 1_000) == [best]
    assert rank_passages([other, best], {"pump": 2.0, "broken": 0.1}, 1_000) == [best, other]
    assert rank_passages([], {}, 1_000) == []

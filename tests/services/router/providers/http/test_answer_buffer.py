"""The room that answers share while they are received."""

import pytest

from services.router.providers.base import ProviderError
from services.router.providers.http.answer_buffer import FREE_BYTES, AnswerBuffer, BufferBudget


def test_small_answers_need_no_room() -> None:
    budget = BufferBudget(0)
    for _ in range(1000):
        AnswerBuffer(budget).reserve(FREE_BYTES)
    assert budget.left_bytes == 0


def test_large_answer_that_finds_no_room_fails_and_others_go_on() -> None:
    budget = BufferBudget(100)
    first, second = AnswerBuffer(budget), AnswerBuffer(budget)
    first.reserve(FREE_BYTES + 60)
    with pytest.raises(ProviderError, match="room"):
        second.reserve(FREE_BYTES + 41)
    second.reserve(FREE_BYTES + 40)
    first.reserve(FREE_BYTES + 60)
    first.release()
    second.reserve(FREE_BYTES + 100)


def test_room_is_given_back_when_less_is_held_and_when_the_answer_is_over() -> None:
    budget = BufferBudget(100)
    buffer = AnswerBuffer(budget)
    for held_bytes in (FREE_BYTES + 100, 0, FREE_BYTES + 100, 5):
        buffer.reserve(held_bytes)
    assert budget.left_bytes == 100
    buffer.reserve(FREE_BYTES + 1)
    buffer.release()
    buffer.release()
    assert budget.left_bytes == 100

"""Room for large answers, shared by those of one server."""

import pytest

from services.router.providers.base import ProviderError
from services.router.providers.http.read_budget import FREE_BYTES, AnswerBuffer, BufferBudget


def test_small_answers_need_no_room() -> None:
    room = BufferBudget(0)
    for _ in range(1000):
        AnswerBuffer(room).hold(FREE_BYTES)
    assert room.left_bytes == 0


def test_large_answer_that_finds_no_room_fails_and_others_go_on() -> None:
    room = BufferBudget(100)
    first, second = AnswerBuffer(room), AnswerBuffer(room)
    first.hold(FREE_BYTES + 60)
    with pytest.raises(ProviderError, match="room"):
        second.hold(FREE_BYTES + 41)
    second.hold(FREE_BYTES + 40)
    first.hold(FREE_BYTES + 60)
    first.leave()
    second.hold(FREE_BYTES + 100)


def test_room_is_given_back_when_less_is_held_and_when_the_answer_is_over() -> None:
    room = BufferBudget(100)
    place = AnswerBuffer(room)
    for held_bytes in (FREE_BYTES + 100, 0, FREE_BYTES + 100, 5):
        place.hold(held_bytes)
    assert room.left_bytes == 100
    place.hold(FREE_BYTES + 1)
    place.leave()
    place.leave()
    assert room.left_bytes == 100

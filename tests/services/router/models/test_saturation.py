"""What a model's server says of its room, on a clock that the tests move."""

import asyncio

import pytest

from services.chassis.errors import LegatoError
from services.router.models.backoff import LEAST_PROBES
from services.router.models.saturation import ModelSaturation, ModelUse
from tests.support.fakes import FakeClock

MANY = 40


class Model:
    def __init__(self, clock: FakeClock) -> None:
        self.saturation = ModelSaturation(clock)
        self.running: list[ModelUse] = []

    def fill(self, count: int = MANY) -> None:
        self.running += [self.saturation.enter("key") for _ in range(count)]

    def refuse(self, retry_after_s: float | None) -> LegatoError:
        model_use = self.saturation.enter("key")
        model_use.release()
        return self.saturation.turned_away(retry_after_s, model_use, "account")


def test_word_of_a_server_leaves_room_for_probes_and_no_limit_once_one_is_answered(clock: FakeClock) -> None:
    model = Model(clock)
    for _ in range(MANY):
        model.refuse(30)
    model.fill(LEAST_PROBES)
    with pytest.raises(LegatoError) as refused:
        model.fill(1)
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s <= 10
    model.running[0].begun()
    model.fill()


def test_server_that_names_no_time_is_asked_by_everybody(clock: FakeClock) -> None:
    model = Model(clock)
    assert model.refuse(None).retry_after_s is not None
    model.fill()


async def test_chats_that_wait_for_a_probe_are_refused_with_it_however_many_were_refused_before(
    clock: FakeClock,
) -> None:
    saturation = ModelSaturation(clock)
    for number in range(MANY):
        model_use = saturation.enter(f"key {number}")
        model_use.release()
        saturation.turned_away(30, model_use, f"account {number}")
    probes = [saturation.enter(f"probe {number}") for number in range(LEAST_PROBES)]
    waiting = [asyncio.create_task(saturation.admit(f"new {number}")) for number in range(MANY)]
    await asyncio.sleep(0)
    assert not any(chat.done() for chat in waiting)
    probes[0].release()
    saturation.turned_away(30, probes[0], "another account")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, LegatoError) for outcome in outcomes)

import asyncio

import pytest

from services.router.providers.http.read_pacing import BEAT_S, LONGEST_REST_S, REST_PER_ANSWER_S, ReadPacer


async def test_while_few_answers_come_none_rests() -> None:
    read_pacer = ReadPacer(lambda: round(BEAT_S / REST_PER_ANSWER_S) - 1)
    assert not read_pacer.pause(lambda: pytest.fail("nobody rests"))


async def test_rests_of_many_end_together_and_not_before_they_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    read_pacer = ReadPacer(lambda: 100)
    over: list[float] = []
    all_over = asyncio.Event()

    def end() -> None:
        over.append(loop.time())
        loop.call_soon(all_over.set)

    began_s = loop.time()
    with monkeypatch.context() as frozen:
        frozen.setattr(loop, "time", lambda: began_s)
        for _ in range(3):
            assert read_pacer.pause(end)
    async with asyncio.timeout(60):
        await all_over.wait()
    # Whoever came after the loop had gone round once more would be missing here.
    assert len(over) == 3
    assert min(over) >= began_s + 100 * REST_PER_ANSWER_S - 0.001


async def test_rest_is_never_longer_than_a_reader_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    until: list[float] = []
    monkeypatch.setattr(loop, "call_at", lambda at_s, *_: until.append(at_s))
    assert ReadPacer(lambda: 1_000_000).pause(lambda: None)
    assert until[0] <= loop.time() + LONGEST_REST_S + BEAT_S


async def test_those_who_begin_to_rest_while_others_end_it_are_woken_too() -> None:
    read_pacer = ReadPacer(lambda: 100)
    woken_again = asyncio.Event()

    def rest_again() -> None:
        assert read_pacer.pause(woken_again.set)

    assert read_pacer.pause(rest_again)
    async with asyncio.timeout(60):
        await woken_again.wait()

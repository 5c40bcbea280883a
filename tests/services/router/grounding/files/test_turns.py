"""Whose document is read next."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.grounding.files.turns import AT_ONCE, MUCH_S, Turns
from tests.support.fakes import FakeClock


class Documents:
    """Documents that are read until they are told to end."""

    def __init__(self, clock: FakeClock) -> None:
        self.turns = Turns(clock)
        # The names of those being read, in the order in which they began.
        self.reading: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> list[str]:
        """Those that wait or are being read."""
        return [name for name, task in self._tasks.items() if not task.done()]

    async def add(self, *names: str) -> None:
        """A name is the account's, and what follows a slash."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._read(name))
            await asyncio.sleep(0)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await asyncio.sleep(0)

    async def cancel_at_once(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
        await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)

    async def _read(self, name: str) -> None:
        async with self.turns.turn(name.partition("/")[0]):
            with self._shown(name):
                await self._ends[name].wait()

    @contextmanager
    def _shown(self, name: str) -> Iterator[None]:
        self.reading.append(name)
        try:
            yield
        finally:
            self.reading.remove(name)


@pytest.fixture
def documents(clock: FakeClock) -> Documents:
    return Documents(clock)


async def test_document_is_read_at_once_while_another_account_has_many(documents: Documents) -> None:
    await documents.add("one/1", "one/2", "one/3", "one/4")
    assert documents.reading == ["one/1"]
    await documents.add("two/1")
    assert documents.reading == ["one/1", "two/1"]


async def test_accounts_take_turns(documents: Documents, clock: FakeClock) -> None:
    await documents.add("one/1", "two/1", "one/2", "one/3", "three/1")
    clock.advance(1)
    await documents.end("two/1")
    assert documents.reading == ["one/1", "three/1"]
    await documents.end("one/1")
    assert documents.reading == ["three/1", "one/2"]
    await documents.end("three/1")
    # Alone, an account still reads one at a time, in order.
    assert documents.reading == ["one/2"]
    await documents.end("one/2")
    assert documents.reading == ["one/3"]


async def test_account_that_took_less_time_is_first(documents: Documents, clock: FakeClock) -> None:
    await documents.add("one/1", "two/1")
    clock.advance(2)
    await documents.end("two/1")
    clock.advance(5)
    await documents.add("three/1", "one/2", "two/2")
    await documents.end("one/1")
    assert documents.reading == ["three/1", "two/2"]


async def test_accounts_that_took_much_time_leave_a_reader_to_the_others(
    documents: Documents, clock: FakeClock
) -> None:
    await documents.add("slow/1", "late/1")
    clock.advance(MUCH_S + 1)
    await documents.end("slow/1")
    await documents.end("late/1")
    await documents.add("slow/2", "late/2")
    assert documents.reading == ["slow/2"]
    await documents.add("new/1")
    assert documents.reading == ["slow/2", "new/1"]
    await documents.end("new/1")
    assert documents.reading == ["slow/2"]
    await documents.end("slow/2")
    assert documents.reading == ["late/2"]


async def test_time_is_forgotten(documents: Documents, clock: FakeClock) -> None:
    await documents.add("slow/1", "late/1")
    clock.advance(10 * MUCH_S)
    await documents.end("slow/1")
    await documents.end("late/1")
    clock.advance(601)
    await documents.add("slow/2", "late/2")
    assert documents.reading == ["slow/2", "late/2"]


async def test_sender_that_leaves_gives_its_place_or_its_turn_to_the_next(documents: Documents) -> None:
    await documents.add("one/1", "two/1", "three/1", "four/1")
    await documents.cancel("three/1")
    await documents.cancel("one/1")
    assert documents.reading == ["two/1", "four/1"]
    await documents.end("two/1")
    await documents.end("four/1")
    assert documents.turns._waiting == {}
    assert documents.turns._running == {}


async def test_senders_that_leave_at_the_same_time_are_not_called(documents: Documents) -> None:
    await documents.add("one/1", "two/1", "one/2", "three/1", "four/1")
    await documents.cancel_at_once("one/1", "one/2", "three/1")
    assert documents.reading == ["two/1", "four/1"]
    await documents.cancel_at_once("two/1", "four/1")
    assert documents.turns._waiting == {}
    assert documents.turns._running == {}


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "end", "cancel", "time"]), st.integers(0, 5), st.integers(0, 3)), max_size=60
)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_whatever_comes_and_goes_every_document_gets_its_turn(steps: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        clock = FakeClock()
        documents = Documents(clock)
        for number, (what, chosen, account) in enumerate(steps):
            name = documents.names[chosen % len(documents.names)] if documents.names else ""
            if what == "add":
                await documents.add(f"{account}/{number}")
            elif what == "time":
                clock.advance(10.0 * chosen)
            elif name and what == "cancel":
                await documents.cancel_at_once(name)
            elif name in documents.reading:
                await documents.end(name)
            await asyncio.sleep(0)
            accounts = [name.partition("/")[0] for name in documents.reading]
            assert len(accounts) == len(set(accounts)) <= AT_ONCE
        while documents.names:
            assert documents.reading
            await documents.end(documents.reading[0])
        assert documents.turns._waiting == {}
        assert documents.turns._running == {}

    asyncio.run(run())

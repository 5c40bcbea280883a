"""Decides whose document is read next: accounts take turns, and those that took much time lately come last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from services.chassis.load.gcra import Buckets
from services.chassis.timing.deadlines import Clock

# Each reader occupies a CPU core.
AT_ONCE: Final = 2
# Time is forgotten this many times more slowly than it passes.
FORGOTTEN_IN: Final = 10
# An account that has taken more than this lately waits for the readers that all such accounts share.
MUCH_S: Final = 30.0
# An account that reads all the time is not punished for longer than this.
REMEMBERED_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Turn:
    began_s: float
    # Whether the account had taken much time before.
    is_heavy: bool


class Turns:
    """A fair queue. An account reads one document at a time, and one reader is kept for accounts that have taken
    little time: however long the others' documents take, theirs are read."""

    def __init__(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        self._clock = clock
        self._at_once = at_once
        # How long each account's time is remembered yet.
        self._taken = Buckets(clock)
        self._running: dict[str, _Turn] = {}
        # The account of each document, in the order in which they began to wait.
        self._waiting: dict[object, str] = {}
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, account_id: str) -> AsyncIterator[None]:
        """Waits for the account's turn, which lasts as long as the context."""
        document = object()
        async with self._changed:
            self._waiting[document] = account_id
            try:
                await self._changed.wait_for(lambda: self._choose() is document)
                self._running[account_id] = _Turn(self._clock.elapsed_s(), self._is_heavy(account_id))
            finally:
                del self._waiting[document]
                # There may be a reader left, or a turn that nothing takes.
                self._changed.notify_all()
        try:
            yield
        finally:
            self._end(account_id)
            async with self._changed:
                self._changed.notify_all()

    def _choose(self) -> object | None:
        """Returns the document of the account that has taken the least time; of several, the one that has waited
        longest. None if no reader is free for any."""
        if len(self._running) >= self._at_once:
            return None
        are_heavy_full = sum(turn.is_heavy for turn in self._running.values()) >= max(1, self._at_once - 1)
        ready = {
            document: account_id
            for document, account_id in self._waiting.items()
            if account_id not in self._running and not (are_heavy_full and self._is_heavy(account_id))
        }
        now_ns = self._taken.now_ns()
        return min(ready, key=lambda document: self._taken.ahead_ns(ready[document], now_ns), default=None)

    def _is_heavy(self, account_id: str) -> bool:
        return self._taken.ahead_ns(account_id, self._taken.now_ns()) > FORGOTTEN_IN * MUCH_S * 1e9

    def _end(self, account_id: str) -> None:
        took_s = self._clock.elapsed_s() - self._running.pop(account_id).began_s
        now_ns = self._taken.now_ns()
        ahead_ns = self._taken.ahead_ns(account_id, now_ns) + round(FORGOTTEN_IN * took_s * 1e9)
        self._taken.set_ahead(account_id, min(ahead_ns, round(REMEMBERED_S * 1e9)), now_ns)

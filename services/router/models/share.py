"""This router's share of the places that a model has for the chats of all routers."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from legato_protos.metering.v1 import model_shares_pb2 as pb
from services.chassis.load.admission import Gate
from services.chassis.timing.deadlines import Clock

CALLS_EVERY_S: Final = 0.5
# How long a chat waits while other routers have places that they do not use, and how often it asks.
PATIENCE_S: Final = 1.5
ASKS_EVERY_S: Final = 0.1


class RouterShare:
    """The part of a model's limit that this router may use, whichever version of the routes a chat began under. It
    lowers its ceiling before it claims less, and raises it only by an answer."""

    def __init__(self, name: str, clock: Clock, ask: Callable[[], Awaitable[None]], *, is_alone: bool = False) -> None:
        """`ask` returns when metering has answered a call that began later, or has not. `is_alone` if the whole limit
        is this router's."""
        self.name = name
        self.limit = 0
        self._clock = clock
        self._ask = ask
        # Those that chats enter now, and earlier ones with chats that still run.
        self._gates: list[Gate] = []
        self._is_alone = is_alone
        self._ceiling = 0
        # What the last call claimed.
        self._claimed_limit = 0
        self._until_s = -math.inf
        # All places were in use lately.
        self._contended_until_s = -math.inf
        self._waiting = 0
        # The most chats that ran or waited in this period, and in the one before.
        self._peak = self._peak_before = 0
        self._period_ends_s = -math.inf
        # Metering may count something for this router.
        self._is_counted = False

    @property
    def running(self) -> int:
        return sum(gate.running for gate in self._gates)

    @property
    def places(self) -> int:
        """The number of chats that may run, those that do included."""
        if self._is_alone:
            return self.limit
        return min(self.limit, self._ceiling) if self._clock.elapsed_s() < self._until_s else 0

    @property
    def may_grow(self) -> bool:
        """Returns whether metering may have another place."""
        return self.places < self.limit and self._clock.elapsed_s() >= self._contended_until_s

    def places_of(self, gate: Gate) -> int:
        """Returns how many chats of a gate may run."""
        others = sum(each.running for each in self._gates if each is not gate) if len(self._gates) > 1 else 0
        return self.places - others

    def use(self, limit: int, gate: Gate) -> None:
        """Makes this the limit, which chats reach through this gate from now on. Of a lower one than before, nothing is
        this router's until metering has answered a call that names it."""
        if limit < self.limit:
            self._ceiling, self._contended_until_s = 0, -math.inf
        self.limit = limit
        self._gates = [gate, *(each for each in self._gates if each.running)]

    def record(self, gate: Gate, refused: int = 0) -> None:
        """Records that a chat has passed the gate, or that one was refused there."""
        if gate not in self._gates:
            # Its search for a model began before the routes changed.
            self._gates.append(gate)
        self._record_peak(refused)

    async def wait(self, has_room: Callable[[], bool]) -> None:
        """Waits until metering has given another place, if one may be free."""
        ends_s = self._clock.elapsed_s() + PATIENCE_S
        self._waiting += 1
        self._record_peak()
        try:
            await self._ask()
            while not has_room() and self.may_grow and self._clock.elapsed_s() < ends_s:
                await asyncio.sleep(ASKS_EVERY_S)
                await self._ask()
        finally:
            self._waiting -= 1

    def set_alone(self, is_alone: bool) -> None:
        self._is_alone = is_alone

    def give_back(self) -> None:
        """Wants no more than what runs."""
        self._peak = self._peak_before = 0

    def claim(self) -> pb.ShareClaim | None:
        """Returns the claim of a call that begins now; None if it has nothing to claim."""
        now_s = self._clock.elapsed_s()
        if now_s >= self._period_ends_s:
            self._peak_before, self._peak = self._peak, 0
            self._period_ends_s = now_s + CALLS_EVERY_S
        self._record_peak()
        wanted = max(self._peak, self._peak_before)
        self._ceiling = min(self._ceiling, wanted)
        held = max(self.places, self.running)
        if not (held or wanted or self._is_counted):
            return None
        self._is_counted = bool(held or wanted)
        self._claimed_limit = self.limit
        return pb.ShareClaim(limit_name=self.name, limit=self.limit, held=held, wanted=wanted)

    def renew(self, places: int, until_s: float, *, is_contended: bool) -> None:
        """Takes over metering's answer."""
        self._ceiling, self._until_s = 0 if self.limit < self._claimed_limit else places, until_s
        self._contended_until_s = self._clock.elapsed_s() + 2 * CALLS_EVERY_S if is_contended else -math.inf

    def _record_peak(self, refused: int = 0) -> None:
        self._peak = max(self._peak, self.running + self._waiting + refused)

"""A gate on a clock that the tests move, and the chats inside."""

import contextlib

import pytest

from services.chassis.errors import LegatoError
from services.chassis.load.admission import LEAST_SAMPLES, ROUND_S, Gate, Permit, QueueingSignal
from tests.support.fakes import FakeClock

CALM = 0.5
QUEUEING = 1.25
MUCH_QUEUEING = 10.0
FAR_TOO_MANY = 10_000


class GateHarness:
    """A gate with one signal, and the chats inside."""

    def __init__(self, clock: FakeClock, **options: object) -> None:
        self.clock = clock
        self.gate = Gate("The house", clock, **{"dice": lambda: 0.5, **options})  # type: ignore[arg-type]
        self.signal = QueueingSignal(self.gate, clock)
        self.places: list[Permit] = []

    def let_in(self, count: int, key_id: str = "key") -> None:
        self.places += [self.gate.acquire(key_id) for _ in range(count)]

    def let_out(self, count: int) -> None:
        for _ in range(count):
            self.places.pop(0).release()

    def running_of(self, key_id: str) -> int:
        return self.gate.running_by_key[key_id]

    def measure(self, pressure: float, *, signal: QueueingSignal | None = None) -> None:
        """A whole round of samples."""
        for _ in range(LEAST_SAMPLES):
            (signal or self.signal).record(pressure)
            self.clock.advance(ROUND_S / (LEAST_SAMPLES // 2))

    def refusal(self, key_id: str = "key") -> LegatoError:
        with pytest.raises(LegatoError) as refused:
            self.gate.acquire(key_id)
        return refused.value

    def fill(self, key_id: str = "key") -> None:
        """Until a chat with this key is refused."""
        with contextlib.suppress(LegatoError):
            for _ in range(FAR_TOO_MANY):
                self.let_in(1, key_id)
            pytest.fail("no chat is refused")

    def shrink_to(self, limit: int) -> None:
        """Makes one mild cut of what was running, with no chat left inside."""
        self.let_in(round(limit / 0.8))
        self.measure(QUEUEING)
        self.let_out(self.gate.running)
        assert self.gate.limit == pytest.approx(limit)

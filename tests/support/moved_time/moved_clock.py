"""The time of a running service, which a test moves: waits of minutes are over in milliseconds.

    with MovedClock(folder) as clock, Service(upstream, clock.environ) as service:
        clock.move(30)

The edge and the router run on it, with their default timeouts. It goes on like any clock, and jumps when it is moved,
in small steps: the next step waits until both processes have done all that was due by then. Auth, metering, their
databases and gRPC keep the machine's time.
"""

import mmap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.moved_time.startup.sitecustomize import PROCESSES, SIZE_BYTES, VARIABLE
from tests.support.waiting import WAIT_TIMEOUT_S

STARTUP = Path(__file__).with_name("startup")
STEP_S: Final = 2.0
# For what is on its way between processes.
REST_S: Final = 0.004
POLL_S: Final = 0.001


class MovedClock:
    def __init__(self, folder: Path, is_waiting: Callable[[], bool] = lambda: False) -> None:
        """While it `is_waiting`, it moves by itself."""
        self._file = folder / "time"
        self._file.write_bytes(bytes(SIZE_BYTES))
        self._is_waiting = is_waiting
        self._is_over = threading.Event()
        self._moving = threading.Thread(target=self._move_while_waiting, daemon=True)
        self._lock = threading.Lock()

    @property
    def environ(self) -> dict[str, str]:
        return {VARIABLE: str(self._file), "PYTHONPATH": str(STARTUP)}

    @property
    def ahead_s(self) -> float:
        """How far it was moved."""
        return self._times[0]

    def __enter__(self) -> "MovedClock":
        with self._file.open("r+b") as opened:
            self._times: memoryview[float] = memoryview(mmap.mmap(opened.fileno(), SIZE_BYTES)).cast("d")
        self._moving.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        self._moving.join()

    def move(self, by_s: float) -> None:
        """Moves it, and returns when the service has done what was due."""
        while by_s > 0:
            self._step(min(by_s, STEP_S))
            by_s -= STEP_S

    def _step(self, by_s: float) -> None:
        with self._lock:
            self._times[0] += by_s
            give_up_at_s = time.monotonic() + WAIT_TIMEOUT_S
            while any(self._times[place] != self._times[0] for place in PROCESSES.values()):
                if time.monotonic() > give_up_at_s or self._is_over.wait(POLL_S):
                    return
            time.sleep(REST_S)

    def _move_while_waiting(self) -> None:
        while not self._is_over.wait(POLL_S):
            if self._is_waiting():
                self._step(STEP_S)

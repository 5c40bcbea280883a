"""A bar on the terminal of whoever waits. Says nothing where nobody looks."""

import time
from typing import TextIO

WIDTH = 30


class Progress:
    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._steps = steps
        self._begun = 0
        self._name = ""
        self._expected_s = 1.0
        self._step_began_at_s = 0.0

    def step(self, name: str, expected_s: float) -> None:
        """The next of the steps begins."""
        self._begun += 1
        self._name, self._expected_s, self._step_began_at_s = name, expected_s, time.monotonic()
        self.show()

    def show(self) -> None:
        """Call it every now and then."""
        if not self._is_shown:
            return
        part = min(1.0, (time.monotonic() - self._step_began_at_s) / self._expected_s)
        filled = round(WIDTH * (self._begun - 1 + part) / self._steps)
        bar = "#" * filled + "." * (WIDTH - filled)
        self._stream.write(f"\r\x1b[K[{bar}] {self._begun}/{self._steps} {self._name}")
        self._stream.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

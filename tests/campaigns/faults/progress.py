"""Shows a campaign's progress: a bar on a terminal, a line now and then elsewhere."""

import sys
import time

BAR_WIDTH = 30
LINE_EVERY_S = 15.0


class Progress:
    def __init__(self, title: str, total: int, counted: str = "kills") -> None:
        self._title = title
        self._counted = counted
        self._total = total
        self._done = 0
        self._began_at_s = time.monotonic()
        self._told_at_s = 0.0
        self._is_terminal = sys.stdout.isatty()

    def advance(self, now_at: str = "", by: int = 1) -> None:
        self._done += by
        now_s = time.monotonic()
        every_s = 0.2 if self._is_terminal else LINE_EVERY_S
        if now_s - self._told_at_s < every_s and self._done < self._total:
            return
        self._told_at_s = now_s
        spent_s = now_s - self._began_at_s
        left_s = spent_s / self._done * (self._total - self._done)
        filled = BAR_WIDTH * self._done // max(1, self._total)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        line = f"{self._title} [{bar}] {self._done}/{self._total} {self._counted}, {_minutes(left_s)} left"
        line += f", {now_at}" if now_at else ""
        self._write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")

    def say(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")

    def end(self) -> None:
        if self._is_terminal:
            self._write("\r\x1b[K")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

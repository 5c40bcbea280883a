"""A bar for whoever waits at a terminal. Says nothing where nobody looks."""

from typing import TextIO

WIDTH = 30


class Bar:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._shown = ""

    def show(self, what: str, done: int, total: int) -> None:
        if not self._is_shown:
            return
        part = min(1.0, done / total) if total else 1.0
        filled = round(WIDTH * part)
        text = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {round(100 * part):3}% {what}"
        if text != self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = ""

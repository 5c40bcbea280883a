"""A progress bar on a terminal. Prints nothing elsewhere."""

from typing import TextIO

WIDTH = 30


class Bar:
    def __init__(self, stream: TextIO | None) -> None:
        """Takes a stream, or None for a stderr that is closed."""
        self._terminal = stream if stream is not None and stream.isatty() else None
        self._shown = ""

    def show(self, what: str, done: int, total: int) -> None:
        if self._terminal is None:
            return
        part = min(1.0, done / total) if total else 1.0
        filled = round(WIDTH * part)
        text = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {round(100 * part):3}% {what}"
        if text != self._shown:
            self._write(text)

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        """Replaces the line."""
        if self._terminal is not None:
            self._terminal.write(f"\r\x1b[K{text}")
            self._terminal.flush()
            self._shown = text

"""Structured logs that cannot contain message content.

A line is an event's name and fields from the list below, and nothing else: a field that is not listed is an error in
the code. Records of libraries that use `logging` keep the logger's name, the level and the exception's type, never the
text, since it may quote a message. The same holds for warnings, and for uncaught exceptions in threads and finalizers,
which Python would print in full.
"""

import asyncio
import atexit
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Final

import msgspec

Value = str | int | float | bool | None

ALLOWED_FIELDS: Final = frozenset(
    {
        "account_id", "address", "attempt", "batch_size", "character_version", "chats", "class_id", "completion_tokens",
        "continuations", "cost_nanos", "duration_ms", "end", "epoch", "error", "finish_reason", "http_status",
        "key_id", "listen", "logger", "loss_nanos", "model_name", "name", "operation_id", "pid", "price_version",
        "prompt_tokens", "provider", "reason", "request_id", "restarts", "routes_version", "stream", "tools",
        "trace_id", "version", "violation", "violations", "month", "entries", "closing_hash", "partition",
    }
)  # fmt: skip


# How long a line may be buffered. Writing each one by itself would cost more than making it.
GATHERED_FOR_S: Final = 0.1


class Log:
    def __init__(
        self, service: str, stream: IO[str] | None = None, *, debug: bool = False, gathers: bool = False
    ) -> None:
        """Logs to `stream`; with `gathers`, debug and info lines are buffered for a moment on the event loop. Warnings
        and failures never are."""
        self._service = service
        self._stream = stream or sys.stderr
        self.is_debug = debug
        self._gathers = gathers
        self._gathered: list[str] = []
        # A full disk took only the beginning of a line.
        self._is_cut = False

    def debug(self, event: str, **fields: Value) -> None:
        if self.is_debug:
            self._write("debug", event, fields, at_once=not self._gathers)

    def info(self, event: str, **fields: Value) -> None:
        self._write("info", event, fields, at_once=not self._gathers)

    def warning(self, event: str, **fields: Value) -> None:
        self._write("warning", event, fields)

    def failure(self, event: str, error: BaseException, **fields: Value) -> None:
        """Logs an unexpected exception: its type, its causes and where it was raised, but not its text."""
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        at = f" at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where is not None else ""
        kinds = [type(error).__name__]
        while (cause := error.__cause__) is not None:
            kinds.append(type(cause).__name__)
            error = cause
        self._write("error", event, {**fields, "error": " from ".join(kinds) + at})

    def flush(self) -> None:
        """Writes the buffered lines."""
        lines, self._gathered = self._gathered, []
        if self._is_cut:
            lines.insert(0, "\n")
        try:  # noqa: SIM105 - a context manager is three calls more for each chat
            self._is_cut = not self._put("".join(lines))
        except (OSError, ValueError):
            # A full disk or a closed pipe must not end a request.
            pass

    def _put(self, text: str) -> bool:
        """Returns whether all was written. A text stream does not report that; its buffer does."""
        below = getattr(self._stream, "buffer", None)
        if below is None:
            self._stream.write(text)
            return True
        data = text.encode()
        taken = below.write(data)
        below.flush()
        return bool(taken == len(data))

    def _write(self, level: str, event: str, fields: dict[str, Value], *, at_once: bool = True) -> None:
        self._gathered.append(self._line(level, event, fields))
        if at_once:
            self.flush()
        elif len(self._gathered) == 1:
            self._flush_soon()

    def _flush_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_later(GATHERED_FOR_S, self.flush)
        except RuntimeError:
            # No event loop is running.
            self.flush()

    def _line(self, level: str, event: str, fields: dict[str, Value]) -> str:
        if not fields.keys() <= ALLOWED_FIELDS:
            raise ValueError(f"not a field that may be logged: {sorted(fields.keys() - ALLOWED_FIELDS)}")
        now_ms = time.time_ns() // 1_000_000
        at = f"{_written_second(now_ms // 1000)}.{now_ms % 1000:03d}Z"
        described = {"time": at, "level": level, "service": self._service, "event": event, **fields}
        return msgspec.json.encode(described).decode() + "\n"


@lru_cache(maxsize=1)
def _written_second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _LibraryHandler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else record.levelname
        self._log.warning("library.logged", logger=record.name, error=f"{kind} at {record.pathname}:{record.lineno}")


def open_log(service: str, *, debug: bool = False) -> Log:
    """Opens the process's log on stderr; what libraries log goes there too, without its text."""
    log = Log(service, debug=debug, gathers=True)
    atexit.register(log.flush)
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler(log)], force=True)
    logging.captureWarnings(capture=True)
    threading.excepthook = lambda raised: _log_uncaught(log, raised.exc_value)
    sys.unraisablehook = lambda raised: _log_uncaught(log, raised.exc_value)
    return log


def _log_uncaught(log: Log, error: BaseException | None) -> None:
    if error is not None:
        log.failure("exception.uncaught", error)

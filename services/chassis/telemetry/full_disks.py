"""Names what a process cannot write because its disk is full: in the log, and for `/readyz`."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial

from services.chassis.telemetry.log import Log


class FullDisks:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._full: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """Returns what cannot be written."""
        return [*self._full]

    def noting(self, name: str) -> Callable[[bool], None]:
        """Returns what is told, from any thread, after each attempt to write `name`, or when its outcome changes:
        whether the disk is full."""
        return lambda is_full: self._record_soon(name, is_full=is_full)

    def _record_soon(self, name: str, *, is_full: bool) -> None:
        if is_full is not (name in self._full):
            self._loop.call_soon_threadsafe(partial(self._record, name, is_full=is_full))

    def _record(self, name: str, *, is_full: bool) -> None:
        if is_full is (name in self._full):
            return
        if is_full:
            self._full[name] = None
            self._log.warning("disk.full", name=name)
        else:
            del self._full[name]
            self._log.info("disk.has_room", name=name)


def is_of_full_disk(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)

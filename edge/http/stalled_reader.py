"""A client that does not read its answer."""

import asyncio


class StalledReader:
    """Of one connection: cut off where it took nothing for a while."""

    __slots__ = ("_due", "_loop", "_transport", "_within_s")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, within_s: float) -> None:
        self._transport = transport
        self._loop = loop
        self._within_s = within_s
        self._due: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """To read on; something waits for it."""
        unsent_bytes = self._transport.get_write_buffer_size()
        self._due = self._loop.call_later(self._within_s, self._cut_off_unless_it_read, unsent_bytes)

    def stop(self) -> None:
        """Nothing waits for it any more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _cut_off_unless_it_read(self, unsent_bytes: int) -> None:
        if self._transport.get_write_buffer_size() < unsent_bytes:
            # Slow, but there.
            self.expect()
        else:
            self._transport.abort()

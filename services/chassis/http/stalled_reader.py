"""The timeout of a client that does not read its answer."""

import asyncio


class StalledReader:
    """Closes one connection whose client has read nothing for a while."""

    __slots__ = ("_due", "_loop", "_transport", "_within_s")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, within_s: float) -> None:
        self._transport = transport
        self._loop = loop
        self._within_s = within_s
        self._due: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """Starts the timeout."""
        unsent_bytes = self._transport.get_write_buffer_size()
        self._due = self._loop.call_later(self._within_s, self._close_unless_read, unsent_bytes)

    def stop(self) -> None:
        """Cancels the timeout."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _close_unless_read(self, unsent_bytes: int) -> None:
        if self._transport.get_write_buffer_size() < unsent_bytes:
            # The client reads slowly.
            self.expect()
        else:
            self._transport.abort()

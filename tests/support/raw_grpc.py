"""A client that speaks HTTP/2 frame by frame, and so may do to a gRPC server what no gRPC client would."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_HEADERS: Final = 4
ACKNOWLEDGED: Final = 1
CANCEL: Final = (8).to_bytes(4, "big")
INITIAL_WINDOW_SIZE: Final = 4
MAX_CONCURRENT_STREAMS: Final = 3
LARGEST_FRAME_BYTES: Final = 16384
TIMEOUT_S: Final = 30.0


class RawGrpc:
    """One connection. Its streams are never ended by this side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.settings: dict[int, int] = {}
        # Streams that the server has ended, or refused.
        self.ended: set[int] = set()
        self.goaways: list[bytes] = []
        self.pongs = 0
        self.is_closed = False
        self._acknowledged = 0
        self._initial_window = 65535
        self._windows: dict[int, int] = {0: 65535}
        self._changed = asyncio.Condition()
        self._next_stream = 1
        self._reading = asyncio.create_task(self._read())

    async def begin(self) -> None:
        self._writer.write(PREFACE + _frame(SETTINGS, 0, 0))
        await self._until(lambda: bool(self.settings) or self.is_closed)

    def open(self, method: str, metadata: Mapping[str, str]) -> int:
        """Begins a call, and returns its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            **metadata,
        }
        block = b"".join(_literal(name.encode(), value.encode()) for name, value in fields.items())
        self._writer.write(_frame(HEADERS, END_HEADERS, stream, block))
        return stream

    async def reset(self, streams: Sequence[int]) -> None:
        for stream in streams:
            self._writer.write(_frame(RESET, 0, stream, CANCEL))
        await self._writer.drain()

    async def ping(self) -> None:
        """Waits for the answer, or for the end of the connection."""
        before = self.pongs
        self._writer.write(_frame(PING, 0, 0, b"12345678"))
        await self._until(lambda: self.pongs > before or self.is_closed)

    async def catch_up(self) -> None:
        """Waits until the server has read all that was written: it acknowledges settings in turn."""
        before = self._acknowledged
        self._writer.write(_frame(SETTINGS, 0, 0))
        await self._until(lambda: self._acknowledged > before or self.is_closed)

    async def send(self, stream: int, data: bytes) -> int:
        """Sends as much as the server takes; returns that when the stream has ended, or all was sent."""
        sent = 0
        while sent < len(data):
            await self._until(lambda: self._room(stream) > 0 or self._is_over(stream))
            if self._is_over(stream):
                return sent
            size = min(LARGEST_FRAME_BYTES, len(data) - sent, self._room(stream))
            self._windows[stream] = self._windows.get(stream, self._initial_window) - size
            self._windows[0] -= size
            self._writer.write(_frame(DATA, 0, stream, data[sent : sent + size]))
            await self._writer.drain()
            sent += size
        return sent

    async def until_ended(self, streams: Sequence[int]) -> None:
        await self._until(lambda: self.is_closed or self.ended.issuperset(streams))

    async def close(self) -> None:
        self._writer.close()
        await self._reading
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(is_so)

    def _room(self, stream: int) -> int:
        return min(self._windows[0], self._windows.get(stream, self._initial_window))

    def _is_over(self, stream: int) -> bool:
        return self.is_closed or stream in self.ended

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                async with self._changed:
                    self._take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, OSError):
            async with self._changed:
                self.is_closed = True
                self._changed.notify_all()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACKNOWLEDGED:
            for at in range(0, len(payload), 6):
                self.settings[int.from_bytes(payload[at : at + 2], "big")] = int.from_bytes(payload[at + 2 : at + 6])
            self._initial_window = self.settings.get(INITIAL_WINDOW_SIZE, self._initial_window)
            self._writer.write(_frame(SETTINGS, ACKNOWLEDGED, 0))
        elif kind == SETTINGS:
            self._acknowledged += 1
        elif kind == PING and flags & ACKNOWLEDGED:
            self.pongs += 1
        elif kind == PING:
            self._writer.write(_frame(PING, ACKNOWLEDGED, 0, payload))
        elif kind == GOAWAY:
            self.goaways.append(payload[8:])
        elif kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, self._initial_window) + int.from_bytes(payload)
        elif kind == RESET or (kind in (HEADERS, DATA) and flags & 1):
            self.ended.add(stream)


@contextlib.asynccontextmanager
async def connected(path: str) -> AsyncIterator[RawGrpc]:
    """Connects, and closes the connection whatever happens."""
    client = RawGrpc(*await asyncio.open_unix_connection(path))
    try:
        await client.begin()
        yield client
    finally:
        await client.close()


def message(size_bytes: int, sent_bytes: int) -> bytes:
    """Returns the beginning of a message that says it has `size_bytes`."""
    return b"\0" + size_bytes.to_bytes(4, "big") + b"x" * sent_bytes


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Encodes a header as it is, without an index."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value

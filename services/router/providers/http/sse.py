"""Parses server-sent events from a byte stream, however it is split."""

# Limits on one event with all its lines: a tool call's arguments in one event fit easily.
LONGEST_EVENT_BYTES = 4 * 1024 * 1024
LONGEST_EVENT_LINES = 1024

_ONE_LINE = b"data: "
# Some servers begin with it; it is ignored.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    pass


class EventReader:
    def __init__(self) -> None:
        # An incomplete line.
        self.begun = bytearray()
        # The lines of an incomplete event; they are joined once it ends.
        self.data: list[bytes] = []
        self._data_bytes = 0
        # True until the first line is parsed by `_read`; events of the fast path do not begin with a mark.
        self._may_have_mark = True

    @property
    def held_bytes(self) -> int:
        """Bytes buffered for an incomplete event."""
        return len(self.begun) + self._data_bytes

    def feed(self, received: bytes) -> list[bytes]:
        """Returns the data of each event completed by the received bytes."""
        if b"\n" not in received and b"\r" not in received:
            self._hold(received)
            return []
        if self.begun:
            received = bytes(self.begun) + received
            self.begun.clear()
        if b"\r" in received:
            # A trailing carriage return may be half of a CRLF, so it is held back.
            if received.endswith(b"\r"):
                self._hold(b"\r")
                received = received[:-1]
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self.data and received.startswith(_ONE_LINE) and received.endswith(b"\n\n"):
            events = received[len(_ONE_LINE) : -2].split(b"\n\n" + _ONE_LINE)
            if received.count(b"\n") == 2 * len(events):
                # Fast path for the common case: complete events of one line each.
                return events
        lines = received.split(b"\n")
        rest = lines.pop()
        if rest:
            self.begun[:0] = rest
        return self._read(lines)

    def finish(self) -> list[bytes]:
        """Flushes at the end of the connection: the last event may lack its blank line."""
        lines = bytes(self.begun).replace(b"\r", b"\n").split(b"\n")
        self.begun.clear()
        return self._read([*lines, b""])

    def _hold(self, received: bytes) -> None:
        self.begun += received
        if self.held_bytes > LONGEST_EVENT_BYTES:
            raise EventTooLong

    def _read(self, lines: list[bytes]) -> list[bytes]:
        if self._may_have_mark and lines:
            self._may_have_mark = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        events = []
        data = self.data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._data_bytes += len(line)
                if len(data) > LONGEST_EVENT_LINES or self._data_bytes > LONGEST_EVENT_BYTES:
                    raise EventTooLong
            elif not line and data:
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
                self._data_bytes = 0
            # Comments and other fields (event, id, retry) are ignored.
        return events

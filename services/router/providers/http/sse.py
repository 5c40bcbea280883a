"""Takes server-sent events out of the bytes of a connection, however the network cut them."""

# Of one event, with all of its lines: longer ones are not a chat; a tool call's arguments in one piece fit easily.
LONGEST_EVENT_BYTES = 4 * 1024 * 1024
LONGEST_EVENT_LINES = 1024

_ONE_LINE = b"data: "
# Some servers begin with it, and it means nothing.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    pass


class EventReader:
    def __init__(self) -> None:
        # The beginning of a line whose end has not come yet.
        self._begun = bytearray()
        # The lines of an event whose blank line has not come yet; they are joined once, when it has.
        self._data: list[bytes] = []
        self._data_bytes = 0
        # No line was read yet but whole events as nearly all servers write them, which do not begin with a mark.
        self._may_have_mark = True

    @property
    def held_bytes(self) -> int:
        """Of an event that is not complete."""
        return len(self._begun) + self._data_bytes

    def feed(self, received: bytes) -> list[bytes]:
        """The data of each event that is complete with what was received."""
        if b"\n" not in received and b"\r" not in received:
            self._hold(received)
            return []
        if self._begun:
            received = bytes(self._begun) + received
            self._begun.clear()
        if b"\r" in received:
            # Whether a carriage return ends a line by itself is seen from what follows it.
            if received.endswith(b"\r"):
                self._hold(b"\r")
                received = received[:-1]
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self._data and received.startswith(_ONE_LINE) and received.endswith(b"\n\n"):
            events = received[len(_ONE_LINE) : -2].split(b"\n\n" + _ONE_LINE)
            if received.count(b"\n") == 2 * len(events):
                # As nearly all servers write nearly all of them: whole, and each on one line.
                return events
        lines = received.split(b"\n")
        rest = lines.pop()
        if rest:
            self._begun[:0] = rest
        return self._read(lines)

    def finish(self) -> list[bytes]:
        """The connection is at its end: the last event may lack its blank line."""
        lines = bytes(self._begun).replace(b"\r", b"\n").split(b"\n")
        self._begun.clear()
        return self._read([*lines, b""])

    def _hold(self, received: bytes) -> None:
        self._begun += received
        if self.held_bytes > LONGEST_EVENT_BYTES:
            raise EventTooLong

    def _read(self, lines: list[bytes]) -> list[bytes]:
        if self._may_have_mark and lines:
            self._may_have_mark = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        events = []
        data = self._data
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
            # Comments, and fields that mean nothing to a chat (event, id, retry), are passed over.
        return events

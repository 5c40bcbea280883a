"""Buffers the requests that a client pipelines, which means that it sends them before it has the last answer.

Reading goes on while a request is answered, since otherwise a disconnect would not be noticed. What comes meanwhile is
buffered and not parsed before its turn, since nothing that is wrong with it concerns the answer that is under way.
"""

# Few clients pipeline, and those have to expect that the connection is closed before their turn.
LARGEST_PIPELINED_BYTES = 64 * 1024


class PipelinedData:
    """The buffer of a connection."""

    __slots__ = ("_held", "size_bytes")

    def __init__(self) -> None:
        self._held = bytearray()
        # Size of all that arrived, held or not.
        self.size_bytes = 0

    def add(self, data: bytes) -> bool:
        """Buffers data and returns True, or drops the whole buffer and returns False if it is too large."""
        self.size_bytes += len(data)
        if self.size_bytes > LARGEST_PIPELINED_BYTES:
            self._held.clear()
            return False
        self._held += data
        return True

    def pop_all(self) -> bytes:
        """Returns and clears the buffer."""
        held = bytes(self._held)
        self._held.clear()
        self.size_bytes = 0
        return held

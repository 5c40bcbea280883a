"""What a client sends before it has the answer to what it asked last.

Reading goes on while a request is answered, for who does not read does not hear that the client has left. So what comes
meanwhile has to be put somewhere; and it is not looked at before its turn, since nothing that is wrong with it concerns
the answer that is under way.
"""

# Hardly anybody sends a request that early, and who does has to expect that the connection is closed before its turn.
LARGEST_PIPELINED_BYTES = 64 * 1024


class PipelinedData:
    """Of one connection."""

    __slots__ = ("_held", "size_bytes")

    def __init__(self) -> None:
        self._held = bytearray()
        # Of all that came, held or not.
        self.size_bytes = 0

    def add(self, data: bytes) -> bool:
        """Whether it is held. If not, then nothing is any more, and nothing of it can be taken."""
        self.size_bytes += len(data)
        if self.size_bytes > LARGEST_PIPELINED_BYTES:
            self._held.clear()
            return False
        self._held += data
        return True

    def pop_all(self) -> bytes:
        """All of it, in its turn."""
        held = bytes(self._held)
        self._held.clear()
        self.size_bytes = 0
        return held

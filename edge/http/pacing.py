"""How fast requests are read, by how much work they are.

Each piece of a body costs about as much as a kilobyte of it, however small it is. So a body of very many pieces is read
in slices, and between those its connection waits for as long as its pieces cost: all such connections together take a
small part of a processor, and share it. A body in pieces of an ordinary size never waits.
"""

from typing import Final

# What is read of a connection in one go: of the smallest pieces there are, this takes a few milliseconds.
SLICE_BYTES: Final = 16 * 1024
# A piece of an ordinary size is free, and so are some smaller ones of each request: they are as much work as the
# request itself.
ORDINARY_PIECE_BYTES: Final = 256
FREE_PIECES: Final = 512
# Of all connections together.
PIECES_PER_S: Final = 50_000
# A shorter rest would cost more than it saves; it is added to the next.
SHORTEST_REST_S: Final = 0.001


class BodyPacer:
    """Of one connection."""

    __slots__ = ("_free_pieces", "_owed_s", "_owing")

    def __init__(self, owing: "set[BodyPacer]") -> None:
        """`owing` are those of all connections that have used up what is free."""
        self._owing = owing
        self._free_pieces = 0
        self._owed_s = 0.0

    def begin(self) -> None:
        """A request, after the one before was answered."""
        self._free_pieces = FREE_PIECES
        self._owing.discard(self)

    def charge(self, pieces: int, size_bytes: int, owed_s: float = 0.0) -> float:
        """For what was read: how long to rest before more is. `owed_s` is owed for something else."""
        self._owed_s += owed_s
        # Wherever reading stops there is one more.
        pieces -= 1 + size_bytes // ORDINARY_PIECE_BYTES
        if pieces <= self._free_pieces:
            self._free_pieces -= max(0, pieces)
        else:
            self._owing.add(self)
            self._owed_s += len(self._owing) * (pieces - self._free_pieces) / PIECES_PER_S
            self._free_pieces = 0
        if self._owed_s < SHORTEST_REST_S:
            return 0.0
        rest_s, self._owed_s = self._owed_s, 0.0
        return rest_s

    def close(self) -> None:
        self._owing.discard(self)

"""Throttles the reading of requests by the CPU time they cost.

Each piece of a body costs about as much as a kilobyte of it, however small it is. So a body of very many pieces is
read in slices, between which its connection pauses for as long as its pieces cost: all such connections share a small
part of a CPU. A body in pieces of an ordinary size never waits.
"""

from typing import Final

# Bytes parsed of a connection at once: with the smallest pieces, this takes a few milliseconds.
SLICE_BYTES: Final = 16 * 1024
# A piece of an ordinary size is free, and so are some smaller ones of each request: they cost as much as the request
# itself.
ORDINARY_PIECE_BYTES: Final = 256
FREE_PIECES: Final = 512
# Shared by all connections.
PIECES_PER_S: Final = 50_000
# A shorter pause would cost more than it saves; it is added to the next.
SHORTEST_REST_S: Final = 0.001


class BodyPacer:
    """Paces one connection."""

    __slots__ = ("_free_pieces", "_owed_s", "_owing")

    def __init__(self, owing: "set[BodyPacer]") -> None:
        """Takes `owing`, the set of all connections' pacers whose free pieces are used up."""
        self._owing = owing
        self._free_pieces = 0
        self._owed_s = 0.0

    def begin(self) -> None:
        """Starts a request, after the last was answered."""
        self._free_pieces = FREE_PIECES
        self._owing.discard(self)

    def charge(self, pieces: int, size_bytes: int, owed_s: float = 0.0) -> float:
        """Charges what was read and returns how long to pause. `owed_s` is added to that."""
        self._owed_s += owed_s
        # The end of each slice splits a piece in two.
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

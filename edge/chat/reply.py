"""The answer to a chat, on its way to the client, whatever transport it takes."""

from collections.abc import Sequence
from typing import Protocol

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers
from services.chassis.packed_pieces import unpack_piece

# A piece of an answer, packed or not.
Piece = bytes | router.ChatResponse


class PieceSource(Protocol):
    """The pieces that wait for a transport which writes several at once."""

    # How much waits.
    size_bytes: int

    def take(self) -> Sequence[Piece]:
        """Returns what waits, to be written now: it is counted."""
        ...

    def confirm(self) -> None:
        """Handles that the client has what was taken."""
        ...


class Reply:
    """The response to a chat. Until it is sent, its headers are collected."""

    # Pieces are sent to the client as they come; otherwise they are gathered for one answer at the end.
    is_streamed = False
    # True if the client does not keep up with what was written.
    is_behind = False
    # It takes several pieces from a source when it can write. Otherwise it is given each as it comes.
    gathers_pieces = False

    def __init__(self, ignored: Sequence[str]) -> None:
        """`ignored` are the fields that no model is called with."""
        # The response has begun, so an error can no longer replace it.
        self.is_open = False
        # Some of the answer was written to the client's socket.
        self.delivered = False
        self._headers: Headers = []
        self._ignored = ignored
        self._ignored_by_model: Sequence[str] = ()
        # Whether the pieces of a stream are padded; set when the model begins to answer.
        self.is_padded = False
        # The output limit that was applied, and the number of the attempt that was answered.
        self._started: router.Started | None = None

    @property
    def can_write(self) -> bool:
        """True if a piece can be written at once."""
        return True

    def put_headers(self, headers: Headers) -> None:
        """Adds headers, which are not sent yet."""
        self._headers = [*self._headers, *headers]

    def record_start(self, started: router.Started) -> None:
        self._started = started
        self._ignored_by_model = started.ignored

    def record_ignored(self, names: Sequence[str]) -> None:
        """Replaces the parameters that the model was called without, if they are not sent yet."""
        self._ignored_by_model = names

    def cite(self, citations: Sequence[router.Citation]) -> None:
        """Adds citations, before the end."""
        raise NotImplementedError

    def record_stop(self, sequence: str) -> None:
        """Records which stop ended the answer, before its end. Only some APIs tell it."""

    def add_reasoning_data(self, data: str) -> None:
        """Adds sealed thoughts: those before what is written next, or before the end."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Waits until a piece can be written."""

    def write(self, response: router.ChatResponse) -> None:
        raise NotImplementedError

    def write_packed(self, packed: bytes) -> None:
        """Writes a packed piece, which is not the first."""
        self.write(unpack_piece(packed))

    def gather_from(self, source: PieceSource) -> None:
        """Takes over where its pieces come from, if it gathers them."""
        raise NotImplementedError

    def write_gathered(self) -> None:
        """Writes what waits in the source, now or together with what comes soon."""
        raise NotImplementedError

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        """Ends the answer; `cut_by` says what ended one whose credit was used up."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Begins to send signs of life, where the transport needs them."""

    def stop_keeping_alive(self) -> None:
        """Stops that, before anything else is sent."""

    def takes_failure(self, error: LegatoError) -> bool:
        """Returns whether `fail` reports the error. Otherwise it has a status of its own, in place of an answer."""
        return self.is_open

    async def fail(self, error: LegatoError) -> None:
        """Reports an error within the response, and ends it."""
        raise error

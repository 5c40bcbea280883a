"""The answer to a chat, on its way to the client, whatever transport it takes."""

from collections.abc import Sequence

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers
from services.chassis.packed_pieces import unpack_piece


class Reply:
    """The response to a chat. Until it is sent, its headers are collected."""

    # Pieces are sent to the client as they come; otherwise they are gathered for one answer at the end.
    is_streamed = False
    # True if the client does not keep up with what was written.
    is_behind = False
    # It counts pieces in the journal itself, when it sends them. Otherwise they are counted as they come.
    counts_pieces = False

    def __init__(self, ignored: Sequence[str]) -> None:
        """`ignored` are the fields that no model is called with."""
        # The response has begun, so an error can no longer replace it.
        self.is_open = False
        # Some of the answer was written to the client's socket.
        self.delivered = False
        self._headers: Headers = []
        self._ignored = ignored
        self._ignored_by_model: Sequence[str] = ()
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

    async def prepare(self) -> None:
        """Waits until a piece can be written."""

    def write(self, response: router.ChatResponse) -> None:
        raise NotImplementedError

    def write_packed(self, packed: bytes) -> None:
        """Writes a packed piece, which is not the first."""
        self.write(unpack_piece(packed))

    def drop_unwritten(self) -> tuple[int, int] | None:
        """Drops pieces that still wait to be written to a client that is gone. Returns the tokens of prompt and output
        up to the last that was written; None if all were."""
        return None

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        """Ends the answer; `cut_by` says what ended one whose credit was used up."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Begins to send signs of life, where the transport needs them."""

    def stop_keeping_alive(self) -> None:
        """Stops that, before anything else is sent."""

    async def fail(self, error: LegatoError) -> None:
        """Reports an error once the response is open, and ends it."""
        raise error

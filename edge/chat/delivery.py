"""Delivers the pieces of an answer: each is counted in the journal, and only then written, whatever the transport.

There are two tracks. `take` is the immediate one, for ordinary pieces: it runs where a piece arrives, and wakes no
task. `deliver` is awaited by the chat's task, for the first piece and for those that the immediate track declines.

A transport that writes several pieces at once takes them from `WaitingPieces`, which counts them at that moment.
"""

from collections.abc import Sequence

from edge.access.running_keys import RunningKey
from edge.billing.hold import ChatHold
from edge.billing.journal import OPEN, Slot
from edge.chat.reply import Piece, PieceSource, Reply
from legato_protos.router.v1.router_pb2 import ChatResponse
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.packed_pieces import PACKED_MARK, read_counts
from services.chassis.process import failpoints
from services.chassis.timing.deadlines import Clock


class WaitingPieces(PieceSource):
    """Pieces that wait until the transport takes them, and are neither counted nor written before."""

    def __init__(self, hold: ChatHold) -> None:
        self._hold = hold
        self._pieces: list[Piece] = []
        self.size_bytes = 0
        # Tokens of prompt and output, and those of the prompt that were cached: up to the last piece that waits.
        self._counts = (0, 0, 0)
        # Of prompt and output, up to the last piece that was taken.
        self._taken_tokens = (0, 0)

    def add(self, piece: Piece, size_bytes: int, prompt_tokens: int, output_tokens: int) -> None:
        self._pieces.append(piece)
        self.size_bytes += size_bytes
        self._counts = (prompt_tokens, output_tokens, 0)

    def add_end(self, usage: Usage) -> None:
        """Has the final counts counted with what is taken last."""
        self._counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)

    def take(self) -> Sequence[Piece]:
        pieces, self._pieces, self.size_bytes = self._pieces, [], 0
        prompt_tokens, output_tokens, cached_tokens = self._counts
        self._taken_tokens = (prompt_tokens, output_tokens)
        if (slot := self._hold.slot).kind == OPEN:
            _count(slot, prompt_tokens, output_tokens, cached_tokens)
        return pieces

    def confirm(self) -> None:
        if (slot := self._hold.slot).kind == OPEN:
            _confirm(slot)

    def drop(self) -> tuple[int, int]:
        """Drops what waits. Returns the tokens of prompt and output up to the last piece that was taken."""
        self._pieces, self.size_bytes = [], 0
        return self._taken_tokens


class PieceDelivery:
    def __init__(self, hold: ChatHold, reply: Reply, running_key: RunningKey, clock: Clock, over_at_s: float) -> None:
        self._hold = hold
        self._reply = reply
        self._running_key = running_key
        self._clock = clock
        self._over_at_s = over_at_s
        self._waiting: WaitingPieces | None = None
        if reply.gathers_pieces:
            self._waiting = WaitingPieces(hold)
            reply.gather_from(self._waiting)
        # Set while the answer runs, since only then are pieces delivered where they arrive.
        self._slot: Slot | None = None
        # Tokens of what the client was sent, or will be in one piece, as the router counted them.
        self.prompt_tokens = 0
        self.output_tokens = 0
        # What the router has counted at the end.
        self._final = Usage()
        # What the hold covered beside this prompt when the chat's task last looked. It may cover more by now.
        self._covered_output_tokens = 0

    @property
    def usage(self) -> Usage:
        usage = Usage()
        usage.CopyFrom(self._final)
        usage.prompt_tokens, usage.completion_tokens = self.prompt_tokens, self.output_tokens
        return usage

    @property
    def is_under_way(self) -> bool:
        """True if the first of the answer was handed to the transport, and it is unknown whether the client has it."""
        return self._reply.delivered and not self._hold.slot.marked

    @property
    def delivered(self) -> Usage:
        """The tokens that have reached the client."""
        slot = self._hold.slot
        return slot.usage if slot.marked else Usage()

    def open(self) -> None:
        """Begins to deliver pieces where they arrive."""
        self._slot = self._hold.slot

    def close(self) -> None:
        """Ends the delivery: what was not written was not delivered."""
        self._slot = None
        if self._waiting is not None:
            self.prompt_tokens, self.output_tokens = self._waiting.drop()

    def take(self, payload: bytes) -> bool:
        """Delivers a piece at once, packed or not. Declines it if the chat's task has to wait or to decide: there is
        more to it than a piece, the key is refused, the time is over, the hold may not cover it, or the client does not
        keep up."""
        slot, response = self._slot, None
        if slot is None:
            return False
        if payload.startswith(PACKED_MARK):
            prompt_tokens, output_tokens = read_counts(payload)
        else:
            response = ChatResponse.FromString(payload)
            if not _is_piece(response):
                return False
            prompt_tokens, output_tokens = response.prompt_tokens, response.output_tokens
        if (
            output_tokens > self._covered_output_tokens
            or prompt_tokens != self.prompt_tokens
            or self._running_key.is_refused
            or self._reply.is_behind
            or self._clock.elapsed_s() >= self._over_at_s
        ):
            return False
        if response is not None:
            self._write(response)
            return True
        self.output_tokens = output_tokens
        if (waiting := self._waiting) is not None:
            waiting.add(payload, len(payload), prompt_tokens, output_tokens)
            self._reply.write_gathered()
            return True
        slot.count(prompt_tokens, output_tokens)
        if failpoints.watched:
            failpoints.hit("edge.counted")
        self._reply.write_packed(payload)
        if failpoints.watched:
            failpoints.hit("edge.relayed")
        return True

    async def deliver(self, response: ChatResponse) -> bool:
        """Delivers a piece as soon as the hold covers it and the client keeps up. Returns False if the account cannot
        hold enough."""
        if not await self._cover(response):
            return False
        if response.contents or response.tool_calls or response.reasoning:
            if not self._reply.can_write:
                await self._reply.prepare()
            self._write(response)
        elif response.reasoning_data:
            self._reply.add_reasoning_data(response.reasoning_data)
        return True

    def count_end(self, usage: Usage) -> bool:
        """Takes over the final counts. If the client has nothing of the answer yet, they are counted like a first
        piece, before it is written. Returns whether the client has some."""
        self.prompt_tokens = usage.prompt_tokens
        self.output_tokens = usage.completion_tokens
        self._final = usage
        slot = self._hold.slot
        if self._waiting is not None:
            self._waiting.add_end(usage)
        elif slot.kind == OPEN and not slot.marked:
            _count(slot, self.prompt_tokens, self.output_tokens, usage.cached_tokens)
        return slot.marked

    async def _cover(self, response: ChatResponse) -> bool:
        """Grows the hold for a response beyond it, as when the router counts more tokens than the model did. Holds
        twice the output, or every further piece would have to wait."""
        prompt_tokens, output_tokens = response.prompt_tokens, response.output_tokens
        covered = self._hold.covered_output_tokens(prompt_tokens)
        if output_tokens > covered and not response.HasField("finished"):
            await self._hold.grow(prompt_tokens, 2 * output_tokens, self.delivered)
            covered = self._hold.covered_output_tokens(prompt_tokens)
        self._covered_output_tokens = covered
        return output_tokens <= covered or response.HasField("finished")

    def _write(self, response: ChatResponse) -> None:
        self.prompt_tokens = response.prompt_tokens
        self.output_tokens = response.output_tokens
        if response.reasoning_data:
            self._reply.add_reasoning_data(response.reasoning_data)
        if self._waiting is not None:
            self._waiting.add(response, response.ByteSize(), self.prompt_tokens, self.output_tokens)
            self._reply.write_gathered()
        elif self._reply.is_streamed:
            slot = self._hold.slot
            _count(slot, self.prompt_tokens, self.output_tokens)
            self._reply.write(response)
            _confirm(slot)
        else:
            # It is counted with the end, and written then.
            self._reply.write(response)


def _count(slot: Slot, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
    slot.count(prompt_tokens, output_tokens, cached_tokens)
    failpoints.hit("edge.counted" if slot.marked else "edge.counted_first")


def _confirm(slot: Slot) -> None:
    """Marks the first delivery."""
    if slot.marked:
        failpoints.hit("edge.relayed")
        return
    failpoints.hit("edge.relayed_first")
    slot.mark()
    failpoints.hit("edge.marked")


def _is_piece(response: ChatResponse) -> bool:
    """Returns whether there is text, reasoning or a tool call, and nothing for the chat's task."""
    return bool(response.contents or response.tool_calls or response.reasoning) and not (
        response.HasField("finished") or response.HasField("need") or response.HasField("started")
    )

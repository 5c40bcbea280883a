"""Delivers the pieces of an answer: each is counted in the journal, and only then written.

There are two tracks. `take` is the immediate one, for ordinary pieces: it runs where a piece arrives, and wakes no
task. `deliver` is awaited by the chat's task, for the first piece and for those that the immediate track declines.
"""

from typing import Final

from edge.access.running_keys import RunningKey
from edge.billing.hold import ChatHold
from edge.billing.journal import Slot
from edge.chat.reply import Reply
from legato_protos.router.v1.router_pb2 import ChatResponse
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.packed_pieces import PACKED_MARK, read_counts
from services.chassis.process import failpoints
from services.chassis.timing.deadlines import Clock


class NotCounted:
    """Stands for the slot in the journal where the reply itself counts what it sends."""

    def count(self, prompt_tokens: int, completion_tokens: int) -> None:
        pass


NOT_COUNTED: Final = NotCounted()


class PieceDelivery:
    def __init__(self, hold: ChatHold, reply: Reply, running_key: RunningKey, clock: Clock, over_at_s: float) -> None:
        self._hold = hold
        self._reply = reply
        self._running_key = running_key
        self._clock = clock
        self._over_at_s = over_at_s
        # Set while the answer runs, since only then are pieces delivered where they arrive.
        self._slot: Slot | NotCounted | None = None
        # Tokens of what the client was sent, or will be in one piece, as the router counted them.
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        # What the hold covered beside this prompt when the chat's task last looked. It may cover more by now.
        self._covered_output_tokens = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
        )

    @property
    def delivered(self) -> Usage:
        """The tokens that have reached the client."""
        return self.usage if self._reply.delivered else Usage()

    def open(self) -> None:
        """Begins to deliver pieces where they arrive."""
        self._slot = NOT_COUNTED if self._reply.counts_pieces else self._hold.slot

    def close(self) -> None:
        """Ends the delivery to a client that is gone: what was not written to it was not delivered."""
        self._slot = None
        if (written := self._reply.drop_unwritten()) is not None:
            self.prompt_tokens, self.output_tokens = written

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
        if response.contents or response.tool_calls:
            if not self._reply.can_write:
                await self._reply.prepare()
            self._write(response)
        return True

    def count_end(self, usage: Usage) -> None:
        """Takes over the final counts. Before any of the answer was sent, they are counted like a first piece."""
        self.prompt_tokens = usage.prompt_tokens
        self.output_tokens = usage.completion_tokens
        self.cached_tokens = usage.cached_tokens
        if not (self._reply.delivered or self._hold.is_resolved):
            self._hold.slot.count(self.prompt_tokens, self.output_tokens, self.cached_tokens)
            failpoints.hit("edge.counted_first")

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
        if not self._reply.is_streamed or self._reply.counts_pieces:
            self._reply.write(response)
            return
        is_first, slot = not self._reply.delivered, self._hold.slot
        slot.count(self.prompt_tokens, self.output_tokens)
        failpoints.hit("edge.counted_first" if is_first else "edge.counted")
        self._reply.write(response)
        failpoints.hit("edge.relayed_first" if is_first else "edge.relayed")
        if is_first:
            slot.mark()
            failpoints.hit("edge.marked")


def _is_piece(response: ChatResponse) -> bool:
    """Returns whether there is text or a tool call, and nothing for the chat's task."""
    return bool(response.contents or response.tool_calls) and not (
        response.HasField("finished") or response.HasField("need") or response.HasField("started")
    )

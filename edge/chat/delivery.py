"""Between the router and the client: nothing is handed over before it is counted, no end told before it is sealed."""

from collections.abc import Iterable

from edge.billing.hold import ChatHold
from edge.chat.replies import Reply
from protos.metering.v1 import metering_pb2 as pb
from protos.router.v1.router_pb2 import ChatResponse, Citation, Started
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints


class Delivery:
    def __init__(self, hold: ChatHold, reply: Reply) -> None:
        self._hold = hold
        self._reply = reply
        # Of what the client was given, or will be in one piece: counted by the router.
        self.counted = Usage()
        # What a provider has been asked, as far as that is told.
        self._accepted_prompt_tokens = 0

    @property
    def is_open(self) -> bool:
        return self._reply.is_open

    @property
    def has_begun(self) -> bool:
        return self._reply.delivered

    @property
    def delivered(self) -> Usage:
        return self.counted if self._reply.delivered else Usage()

    def record_start(self, started: Started) -> None:
        self._reply.record_start(started)

    def accept(self, prompt_tokens: int) -> None:
        """A provider has the prompt."""
        self._accepted_prompt_tokens = prompt_tokens

    async def add(self, response: ChatResponse) -> None:
        self.counted = Usage(prompt_tokens=response.prompt_tokens, completion_tokens=response.output_tokens)
        if not self._reply.is_streamed:
            await self._reply.deliver(response)
            return
        is_first = not self._reply.delivered
        self._hold.count(self.counted)
        await self._reply.deliver(response)
        if is_first:
            self._hold.mark()
        else:
            failpoints.hit("edge.relayed")

    def cite(self, citations: Iterable[Citation]) -> None:
        self._reply.cite(citations)

    async def finish(
        self, finish_reason: str, usage: Usage, basis: "pb.Basis.ValueType", end: "pb.End.ValueType"
    ) -> None:
        """The end is sealed before it is told. Where it is the beginning as well, as in an answer that is not streamed,
        it is counted and marked like any first piece, so that nobody is charged who received nothing."""
        if not self.counted.completion_tokens and not usage.completion_tokens:
            # Nothing was said, so nothing is charged.
            self._hold.void(end)
        self.counted = usage
        if self._reply.delivered:
            self._hold.settle(usage, basis, end)
        elif not self._hold.is_resolved:
            self._hold.count(usage)
        await self._reply.finish(finish_reason, usage)
        if not self._hold.is_resolved:
            self._hold.mark()
            self._hold.settle(usage, basis, end)
        failpoints.hit("edge.told")

    async def keep_alive(self) -> None:
        await self._reply.keep_alive()

    async def fail(self, error: LegatoError) -> None:
        """Once the response is open: tell it, and end."""
        await self._reply.fail(error)

    def settle(self, end: "pb.End.ValueType") -> None:
        """Charge what was delivered; if that is nothing, charge nothing. What was settled before stays as it is."""
        if self._reply.delivered:
            self._hold.settle(self.counted, pb.BASIS_COUNTED, end)
        else:
            self._hold.void(end, self._accepted_prompt_tokens)

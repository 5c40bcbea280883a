"""Grows a chat's hold while its answer runs: when the router asks for more, or sends more than it covers."""

import asyncio

from edge.backends.exchanges import ChatCall
from edge.billing.hold import ChatHold
from protos.router.v1.router_pb2 import ChatRequest, ChatResponse, Need
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError


class HoldGrowth:
    def __init__(self, hold: ChatHold) -> None:
        self._hold = hold
        # The router asks for one thing at a time.
        self._answering: asyncio.Task[None] | None = None

    def answer(self, call: ChatCall, need: Need, delivered: Usage) -> None:
        """Answers a request for credit in a task, so that further responses are not delayed."""
        self._answering = asyncio.create_task(self._answer(call, need, delivered))

    async def covers(self, response: ChatResponse, delivered: Usage) -> bool:
        """Grows the hold for a response beyond it, as when the router counts more tokens than the model did, and says
        whether it suffices. Holds twice the output, or every further piece would have to wait."""
        if response.HasField("finished"):
            return True
        prompt_tokens, output_tokens = response.prompt_tokens, response.output_tokens
        await self._hold.grow(prompt_tokens, 2 * output_tokens, delivered)
        return self._hold.covers(prompt_tokens, output_tokens)

    def stop(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            # A cancelled task keeps its traceback, and with it what was to be delivered.
            self._answering = None

    async def _answer(self, call: ChatCall, need: Need, delivered: Usage) -> None:
        try:
            grant = await self._hold.grow(need.prompt_tokens, need.output_tokens, delivered)
        except LegatoError:
            # Repeats the present grant: the router need not wait, and asks again when that is used up.
            grant = self._hold.grant(need.prompt_tokens)
        call.send(ChatRequest(grant=grant))

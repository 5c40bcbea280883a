"""A chat's hold while its answer runs: it grows where the router asks for more, or sends more than it covers."""

import asyncio

from edge.backends.exchanges import ChatCall
from edge.billing.hold import ChatHold
from edge.chat.delivery import Delivery
from protos.router.v1.router_pb2 import ChatRequest, ChatResponse, Need
from services.chassis.errors import LegatoError


class HoldGrowth:
    def __init__(self, hold: ChatHold, delivery: Delivery) -> None:
        self._hold = hold
        self._delivery = delivery
        # The router asks for one thing at a time.
        self._answering: asyncio.Task[None] | None = None

    def answer(self, call: ChatCall, need: Need) -> None:
        """Whatever else the router says in the meantime is not kept waiting."""
        self._answering = asyncio.create_task(self._answer(call, need))

    async def covers(self, response: ChatResponse) -> bool:
        """The router asks for credit ahead of time; what it sends beyond that, as where it counts more than the model
        did, must not be given away either. Twice as much is held, or every further piece would have to wait for it."""
        if response.HasField("finished"):
            return True
        prompt_tokens, output_tokens = response.prompt_tokens, response.output_tokens
        await self._hold.grow(prompt_tokens, 2 * output_tokens, self._delivery.delivered)
        return self._hold.covers(prompt_tokens, output_tokens)

    def stop(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            # A task that is cancelled knows where it was, and so what was to be delivered.
            self._answering = None

    async def _answer(self, call: ChatCall, need: Need) -> None:
        try:
            grant = await self._hold.grow(need.prompt_tokens, need.output_tokens, self._delivery.delivered)
        except LegatoError:
            # That it is no more than before: the router need not wait, and asks again where that ends.
            grant = self._hold.grant(need.prompt_tokens)
        call.send(ChatRequest(grant=grant))

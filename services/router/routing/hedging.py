"""Asks a second model while the first keeps a stream waiting for its first token, in classes that want it (hedging).

The one that answers first wins, and the other is cancelled at once.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.router.routing.model_states import ModelState
from services.router.routing.spending import describe_call
from services.router.routing.upstream import Upstream

# More calls than chats, at most, and how many of them may come at once after a quiet time.
HEDGED_SHARE: Final = 0.05
MOST_AT_ONCE: Final = 10.0
# Of the recent times to the first token, this share is shorter than what a chat waits; fewer times tell nothing.
USUAL_SHARE: Final = 0.95
LEAST_LATENCIES: Final = 20

TryModel = Callable[[ModelState], Awaitable[Upstream | None]]


@dataclass(slots=True)
class HedgeBudget:
    """The second calls that the chats of a class have earned."""

    calls: float = 0.0

    def earn(self) -> None:
        self.calls = min(MOST_AT_ONCE, self.calls + HEDGED_SHARE)

    def take(self) -> bool:
        # The sum of twenty shares is a little less than one.
        if self.calls < 1 - HEDGED_SHARE / 2:
            return False
        self.calls = max(0.0, self.calls - 1)
        return True


def hedge_after_s(model_state: ModelState, first_token_s: float | None) -> float | None:
    """Returns the time that the first model has; None if it is not known what is usual for it."""
    if first_token_s is not None:
        return first_token_s
    latencies_s = sorted(model_state.breaker.last_latencies_s)
    if len(latencies_s) < LEAST_LATENCIES:
        return None
    return latencies_s[math.ceil(USUAL_SHARE * len(latencies_s)) - 1]


@dataclass(slots=True)
class Hedge:
    """The first call of one chat, and a second one if it takes long."""

    try_model: TryModel
    budget: HedgeBudget
    # Our count of the prompt.
    prompt_tokens: int
    # Tells if another healthy model may be asked.
    has_another: Callable[[], bool]
    # Gets the call that lost: its provider has the prompt.
    other_calls: list[ModelCall]
    _is_won: bool = False
    _calls: dict["asyncio.Task[Upstream | None]", ModelState] = field(default_factory=dict)

    async def race(
        self, first: ModelState, after_s: float, next_model: Callable[[], ModelState | None]
    ) -> Upstream | None:
        """Returns the answer that begins first; None if no model has answered."""
        try:
            self._ask(first)
            await asyncio.wait(self._calls, timeout=after_s)
            is_waiting = not any(call.done() for call in self._calls)
            if is_waiting and self.has_another() and self.budget.take():
                second = next_model()
                if second is not None:
                    self._ask(second)
            return await self._winner()
        finally:
            await self._end_others()

    def _ask(self, model_state: ModelState) -> None:
        async def ask() -> Upstream | None:
            return await self.try_model(model_state)

        self._calls[asyncio.create_task(ask())] = model_state

    async def _winner(self) -> Upstream | None:
        is_hedged, waiting = len(self._calls) > 1, set(self._calls)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                upstream = call.result()
                winner = self._calls.pop(call)
                if upstream is not None:
                    winner.hedges.won += is_hedged
                    self._is_won = True
                    return upstream
        return None

    async def _end_others(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        for call, model_state in self._calls.items():
            if self._is_won:
                model_state.hedges.lost += 1
                prompt = Usage(prompt_tokens=self.prompt_tokens)
                model_state.hedges.spending.add(prompt, None)
                self.other_calls.append(describe_call(model_state.target, prompt))
            if not call.cancelled() and call.exception() is None and (upstream := call.result()) is not None:
                # Both have begun at the same time.
                await upstream.discard()

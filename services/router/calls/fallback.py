"""Tries the models of a class in order until one begins to answer (fallback)."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.telemetry.log import Log
from services.router.answers.grants import TokenAllowance
from services.router.calls.attempts import Attempts
from services.router.calls.candidates import continuing, in_turn
from services.router.calls.search import ModelSearch
from services.router.calls.upstream import Upstream
from services.router.models.circuit_breaker import BreakerState
from services.router.models.states import ClassModels, ModelState, ModelStates
from services.router.prompts.prompt import Prompt
from services.router.providers.base import PieceSink
from services.router.providers.http.answer_buffer import BufferBudget
from services.rules.model_classes import CLASSES

# Share of the chats that wait for the first piece of an answer.
RETRY_SHARE: Final = 0.2
LEAST_RETRIES: Final = 3
# Before the one repetition at the same model.
RETRY_DELAY_S: Final = 0.1
RETRY_SPREAD_S: Final = 0.4


@dataclass(slots=True)
class RetryBudget:
    """Limits how many chats of a class try another failing model at the same time."""

    # Chats whose answer has not begun.
    waiting: int = 0
    retries: int = 0

    def enter(self) -> None:
        self.waiting += 1

    def leave(self) -> None:
        self.waiting -= 1

    def begin_retry(self) -> None:
        self.retries += 1

    def end_retry(self) -> None:
        self.retries -= 1

    @property
    def is_spent(self) -> bool:
        return self.retries >= max(LEAST_RETRIES, RETRY_SHARE * self.waiting)


# Returns the models of a class for an account.
FindModels = Callable[[str, str], ClassModels]


class Targets:
    def __init__(
        self,
        model_states: ModelStates,
        log: Log,
        most_attempts: int,
        *,
        find_models: FindModels | None = None,
        sends_traces: bool = False,
    ) -> None:
        """`find_models` finds other models for some accounts than those of the class. `sends_traces` sends our trace
        context to providers, so that their traces can be joined to ours."""
        self._model_states = model_states
        self._find_models = find_models or (lambda class_id, account_id: model_states.by_class[class_id])
        self._log = log
        self._most_attempts = most_attempts
        self._sends_traces = sends_traces
        self._dice = random.random
        self._gather_budget = BufferBudget()
        self._budgets = {class_id: RetryBudget() for class_id in CLASSES}

    async def open(
        self,
        class_id: str,
        chat: ChatOpen,
        prompt: Prompt,
        allowance: TokenAllowance,
        attempts: Attempts,
        sink: PieceSink | None = None,
        *,
        cut: ModelState | None = None,
    ) -> Upstream:
        """`sink` is offered what is read of the answer once it has begun. `cut` is the model whose answer is to be
        continued, which not every model can."""
        budget = self._budgets[class_id]
        models = self._find_models(class_id, chat.account_id)
        candidates, unable = in_turn(models, chat.key_id or chat.account_id, prompt.conversation), []
        if cut is not None:
            candidates = iter(able := list(continuing(candidates, cut)))
            unable = [model_state for model_state in models.all if model_state not in able]
        attempts.begin_search(self._model_states.routes.version)
        search = ModelSearch(
            class_id,
            chat,
            prompt,
            allowance,
            attempts,
            sink,
            models,
            self._log,
            self._sends_traces,
            self._gather_budget,
            self._most_attempts,
            tried=unable,
        )
        budget.enter()
        upstream: Upstream | None = None
        try:
            upstream = await self._try_all(search, candidates, budget) or search.empty
            if upstream is None and cut is None:
                upstream = await self._try_again(search, budget)
        finally:
            budget.leave()
            if search.empty is not None and search.empty is not upstream:
                attempts.other_calls.append(search.empty.describe_empty())
                await search.empty.discard()
        if upstream is None:
            raise search.to_raise()
        if upstream is search.empty:
            # Another was called after it.
            attempts.answer(upstream.plan.target)
        return upstream

    async def _try_all(
        self, search: ModelSearch, candidates: Iterator[ModelState], budget: RetryBudget
    ) -> Upstream | None:
        attempts = search.attempts
        for model_state in candidates:
            if not search.has_attempts:
                break
            if search.refusals.saturated is not None and not model_state.breaker.may_be_asked():
                # Trying it would most likely only delay the client, who may as well retry later.
                break
            # A healthy model can take a fallback, or its gate refuses it. But trying failing models one after
            # another would multiply the load.
            is_retry = attempts.count > 0 and model_state.breaker.state is not BreakerState.CLOSED
            if is_retry and budget.is_spent:
                search.refusals.add_for_now()
                continue
            if is_retry:
                budget.begin_retry()
            try:
                candidate = await search.fit(model_state)
                upstream = None if candidate is None else await search.ask(candidate, may_postpone=True)
            finally:
                if is_retry:
                    budget.end_retry()
            if upstream is not None:
                return upstream
        for postponed in search.postponed:
            upstream = await search.ask(postponed)
            if upstream is not None:
                return upstream
        return None

    async def _try_again(self, search: ModelSearch, budget: RetryBudget) -> Upstream | None:
        """Repeats the last call, once, if its failure may be over soon and its model does not fail all the time."""
        retry = search.retry
        if retry is None or budget.is_spent or not search.has_attempts:
            return None
        if retry.candidate.model_state.breaker.state is not BreakerState.CLOSED:
            return None
        budget.begin_retry()
        try:
            # The chats that failed together do not come back together.
            await asyncio.sleep(retry.after_s + RETRY_DELAY_S + RETRY_SPREAD_S * self._dice())
            return await search.ask(retry.candidate)
        finally:
            budget.end_retry()

"""Sends copies of some chats to a model that is being evaluated, whose answers are counted and discarded.

A copy begins when the chat's own model has begun to answer, and goes on in the background: the chat neither waits for
it nor is charged for it. The model is called with a state of its own, so that copies count neither for the health nor
for the load of one that serves chats, too.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import Final

from legato_protos.router.v1.router_pb2 import ChatOpen, ChatRequest, ChatResponse, Started
from services.chassis.errors import LegatoError
from services.chassis.load.fair_budget import FairBudget
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock, TimeLimit
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import Relay
from services.router.prompts.prompt import Prompt
from services.router.providers.base import ProviderError
from services.router.providers.http.answer_buffer import BufferBudget
from services.router.routing.class_route import ShadowRoute
from services.router.routing.continuation import pass_on_call
from services.router.routing.model_search import Attempts, ModelSearch
from services.router.routing.model_states import ClassModels, ModelState, ModelStates

# Copies of a class at the same time, and the largest prompt of one: together they bound the memory.
MOST_AT_ONCE: Final = 4
MOST_PROMPT_BYTES: Final = 2 * 1024 * 1024
_MINUTE_S: Final = 60.0


class _Nowhere:
    """Stands for the caller of a copy: it takes everything and keeps nothing."""

    has_room: Final = True
    send_packed: Final = None

    async def receive(self) -> ChatRequest:
        raise NotImplementedError("A copy asks its caller for nothing.")

    async def send(self, response: ChatResponse) -> None:
        pass

    def send_soon(self, response: ChatResponse) -> None:
        pass


class Shadows:
    def __init__(
        self,
        model_states: ModelStates,
        prompt_memory: FairBudget,
        clock: Clock,
        log: Log,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._dice = dice
        # Not used: the answer to a copy is always streamed.
        self._gather_budget = BufferBudget()
        self._model_states = model_states
        self._prompt_memory = prompt_memory
        self._clock = clock
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: Counter[str] = Counter()
        # When the copies of the last minute began, by class.
        self._begun_s: dict[str, deque[float]] = {}

    def copy(self, class_id: str, chat: ChatOpen, prompt: Prompt, max_tokens: int) -> None:
        """Begins a copy of a chat that is being answered with at most `max_tokens`, if it is chosen and there is room
        for it."""
        models = self._model_states.by_class[class_id]
        route, model_state = models.route.shadow, models.shadow_model
        if route is None or model_state is None or not self._is_chosen(class_id, route, prompt):
            return
        # Without the request's id: what happens to the copy is not part of the request.
        copied = ChatOpen(account_id=chat.account_id, key_id=chat.key_id, stream=True, max_tokens=max_tokens)
        work = self._send(replace(models, tiers=(), all=(model_state,)), model_state, copied, prompt)
        # Without the chat's trace, which ends with the chat.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._running[class_id] += 1
        self._tasks.add(task)
        task.add_done_callback(self._ends(class_id))

    async def aclose(self) -> None:
        """Ends the copies that still run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_chosen(self, class_id: str, route: ShadowRoute, prompt: Prompt) -> bool:
        if self._dice() * 100 >= route.percent or self._running[class_id] >= MOST_AT_ONCE:
            return False
        messages, memory = prompt.messages, self._prompt_memory
        prompt_bytes = messages.size_bytes + messages.object_bytes + len(prompt.tools.json)
        if prompt_bytes > MOST_PROMPT_BYTES or 2 * memory.used > memory.capacity:
            return False
        now_s, begun_s = self._clock.elapsed_s(), self._begun_s.setdefault(class_id, deque())
        while begun_s and begun_s[0] <= now_s - _MINUTE_S:
            begun_s.popleft()
        if len(begun_s) >= route.calls_per_minute:
            return False
        begun_s.append(now_s)
        return True

    def _ends(self, class_id: str) -> "Callable[[asyncio.Task[None]], None]":
        def end(task: "asyncio.Task[None]") -> None:
            self._running[class_id] -= 1
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._log.failure("shadow.failed", error)

        return end

    async def _send(self, models: ClassModels, model_state: ModelState, chat: ChatOpen, prompt: Prompt) -> None:
        nowhere = _Nowhere()
        relay = Relay(nowhere, only_one_call=prompt.parameters.wants_one_call)
        allowance = TokenAllowance(nowhere, None)
        attempts, budget = Attempts(), self._gather_budget
        search = ModelSearch(chat, prompt, allowance, attempts, relay, models, self._log, False, budget, 1)
        try:
            upstream = await search.try_model(model_state)
            # The model has the prompt.
            del search, prompt
            if upstream is None:
                return
            limit = TimeLimit(model_state.target.timeouts.total_s, ProviderError("took too long to answer"))
            with upstream, limit:
                started = Started(max_tokens=upstream.max_tokens)
                prompt_tokens, judge = upstream.prompt.tokens, upstream.usage_check
                relay.begin(
                    started,
                    prompt_tokens,
                    allowance,
                    upstream.longest_tokens,
                    judge,
                    call_check=upstream.call_check,
                )
                await pass_on_call(upstream, relay)
        except (LegatoError, ProviderError):
            # Counted with the outcomes of the model.
            pass
        finally:
            allowance.close()

"""Lets requests wait while a service is away: in order of arrival, and bounded in number, bytes and time.

A request whose call gets no answer takes a place in a queue, behind those that came before it; the first one tries
again. Once a call is answered, each answer lets two more try, so that a service that is back is not met by all of them
at once. Waiting is not trusting: a key is verified again before the call that follows a wait. Nobody takes all places:
an account has a share of them, and before a key is verified the address that it comes from.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from edge.wire.body_reader import ClientGone
from services.chassis.errors import ACCOUNT_LOCKED, LegatoError, Reason
from services.chassis.http.asgi import BODY, WHEN_GONE, HttpScope
from services.chassis.load.fair_budget import FairBudget
from services.chassis.sentence import Sentence

AnswerT = TypeVar("AnswerT")

# Key of the scope: the size of the body that was read.
HELD_BYTES: Final = "legato.held_bytes"
# Pauses between two attempts of the first in a queue.
TRY_AGAIN_AFTER_S: Final = (0.05, 0.1, 0.25)
# How many may try at once when a service is back.
MOST_TRYING: Final = 64
# For clients that have waited as long as they may, or could not wait.
RETRY_AFTER_S: Final = 5.0


@dataclass(frozen=True)
class WaitLimits:
    """The bounds of a wait: its time, and the requests and bytes of bodies that wait at once."""

    wait_s: float = 15.0
    requests: int = 2_000
    held_bytes: int = 64 * 1024 * 1024


class CurrentRequest:
    """The request that a task serves, as far as it matters to a wait."""

    __slots__ = ("_has_client", "client_name", "ends_at_s", "is_gone", "is_waiting", "scope", "verify_again")

    def __init__(
        self,
        scope: HttpScope,
        verify_again: Callable[[], Awaitable[object]] | None = None,
        client_name: Callable[[], str] = str,
    ) -> None:
        self.scope = scope
        self.verify_again = verify_again
        # Who it comes from as long as its key is not verified; empty if that is not known.
        self.client_name = client_name
        self._has_client = WHEN_GONE in scope
        # When it has waited long enough, on the event loop's clock; None: it has not waited yet.
        self.ends_at_s: float | None = None
        self.is_waiting = False
        self.is_gone = False

    @property
    def held_bytes(self) -> int:
        held: int = self.scope.get(HELD_BYTES) or len(self.scope.get(BODY, b""))
        return held

    def follow_client(self) -> None:
        """Cancels the task when its client disconnects while it waits; raises ClientGone if that has happened."""
        if not self._has_client:
            return
        when_gone = self.scope.get(WHEN_GONE)
        if when_gone is None:
            raise ClientGone
        task = asyncio.current_task()

        def leave() -> None:
            if self.is_waiting and task is not None:
                self.is_gone = True
                task.cancel()

        when_gone(leave)


_current: ContextVar[CurrentRequest | None] = ContextVar("current_request", default=None)


def begin_request(
    scope: HttpScope, verify_again: Callable[[], Awaitable[object]], client_name: Callable[[], str]
) -> None:
    """Records which request the task serves from now on, how its key is verified, and what names its client."""
    _current.set(CurrentRequest(scope, verify_again, client_name))


def end_request() -> None:
    """Drops what a request holds: background work that it has begun refers to the request for as long as it runs."""
    if (request := _current.get()) is not None:
        request.scope, request.verify_again, request.client_name = {}, None, str


def has_waited() -> bool:
    """Returns whether the current request has waited for a service."""
    request = _current.get()
    return request is not None and request.ends_at_s is not None


def is_outage(error: LegatoError) -> bool:
    """Returns whether a service is away, rather than one account locked in its database."""
    return error.reason is Reason.UNAVAILABLE and ACCOUNT_LOCKED not in error.figures


class OutageWait:
    """All requests of this edge that wait, for any service."""

    def __init__(self, limits: WaitLimits | None = None) -> None:
        self.limits = limits or WaitLimits()
        # Of every account, or of the clients that are not known yet.
        self._places = FairBudget("A place to wait", self.limits.requests)
        self._bodies = FairBudget("Memory to wait", self.limits.held_bytes)
        # Ended waits by outcome.
        self.outcomes: Counter[str] = Counter({"served": 0, "refused": 0, "late": 0, "full": 0, "gone": 0})

    @property
    def requests(self) -> int:
        return self._places.used

    @property
    def held_bytes(self) -> int:
        return self._bodies.used

    @contextmanager
    def counted(self, service: str, request: CurrentRequest, account_id: str, *, is_followed: bool) -> Iterator[None]:
        """Counts a request while it waits, and raises if that is one too many, of all or of its account or client.
        Raises ClientGone as soon as its client disconnects, unless the caller follows the client itself."""
        if request.is_waiting:
            # It waits for metering, and then for auth too.
            yield
            return
        # Where nothing is known of a client, it is held to no share.
        name = account_id or request.client_name() or str(id(request))
        with self._places.hold(name) as place, self._bodies.hold(name) as body:
            try:
                place.grow_to(1)
                body.grow_to(request.held_bytes)
            except LegatoError:
                self.outcomes["full"] += 1
                raise _unavailable(Sentence("unavailable_and_full", what=service)) from None
            if not is_followed:
                request.follow_client()
            with self._noting_outcome(request):
                yield

    @contextmanager
    def _noting_outcome(self, request: CurrentRequest) -> Iterator[None]:
        request.is_waiting = True
        outcome = "gone"
        try:
            yield
            outcome = "served"
        except LegatoError as error:
            outcome = "late" if is_outage(error) else "refused"
            raise
        except asyncio.CancelledError:
            if not request.is_gone:
                raise
            task: asyncio.Task[object] = asyncio.current_task()  # type: ignore[assignment]
            task.uncancel()
            raise ClientGone from None
        finally:
            request.is_waiting = False
            self.outcomes[outcome] += 1


class OutageQueues:
    """The queues of one service: one for all requests, or one for each of its replicas, by their addresses."""

    def __init__(self, service: str, waits: OutageWait, *, verifies_again: bool) -> None:
        self._service = service
        self._waits = waits
        self._verifies_again = verifies_again
        # Only those in which requests wait.
        self._queues: dict[str, _Queue] = {}

    async def call(
        self,
        ask: Callable[[], Awaitable[AnswerT]],
        key: Callable[[], str] = str,
        on_repeat: Callable[[], object] = bool,
        *,
        account_id: str = "",
        is_followed: bool = False,
    ) -> AnswerT:
        """Returns the answer, and waits for it while the service is away; `key` names the queue. `on_repeat` is called
        after each attempt whose answer was lost. `account_id` is empty as long as it is not known. `is_followed` says
        that the caller cancels the task itself when the client disconnects."""
        began_s = asyncio.get_running_loop().time()
        if not self._queues or key() not in self._queues:
            try:
                return await ask()
            except LegatoError as error:
                if not is_outage(error):
                    raise
            on_repeat()
        request = _current.get() or CurrentRequest({})
        if request.ends_at_s is None:
            request.ends_at_s = began_s + self._waits.limits.wait_s
        with self._waits.counted(self._service, request, account_id, is_followed=is_followed):
            try:
                async with asyncio.timeout_at(request.ends_at_s):
                    return await self._wait(key(), request, ask, on_repeat)
            except TimeoutError:
                raise _unavailable(Sentence("unavailable", what=self._service)) from None

    async def _wait(
        self,
        key: str,
        request: CurrentRequest,
        ask: Callable[[], Awaitable[AnswerT]],
        on_repeat: Callable[[], object],
    ) -> AnswerT:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        place = queue.enter()
        try:
            while True:
                await place.turn
                try:
                    if self._verifies_again and request.verify_again is not None:
                        await request.verify_again()
                    answer = await ask()
                except LegatoError as error:
                    queue.record(place, is_back=not is_outage(error))
                    if not is_outage(error):
                        raise
                    on_repeat()
                else:
                    queue.record(place, is_back=True)
                    return answer
        finally:
            queue.leave(place)
            if not queue.places and self._queues.get(key) is queue:
                del self._queues[key]


class _Place:
    __slots__ = ("is_trying", "turn")

    def __init__(self) -> None:
        self.is_trying = False
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Queue:
    """The places of waiting requests in order of arrival, and who of them may try."""

    def __init__(self) -> None:
        self.places: dict[_Place, None] = {}
        self._trying = 0
        self._most_trying = 1
        self._failures = 0
        # No request tries before it is over.
        self._pause: asyncio.TimerHandle | None = None
        self._begin_pause()

    def enter(self) -> _Place:
        place = _Place()
        self.places[place] = None
        self._let_try()
        return place

    def record(self, place: _Place, *, is_back: bool) -> None:
        """Ends the attempt of a place, which the service has answered, or not."""
        self._end_attempt(place)
        place.turn = asyncio.get_running_loop().create_future()
        if is_back:
            self._failures = 0
            self._most_trying = min(self._most_trying * 2, MOST_TRYING)
        else:
            self._failures += 1
            self._most_trying = 1
            self._begin_pause()
        self._let_try()

    def leave(self, place: _Place) -> None:
        del self.places[place]
        self._end_attempt(place)
        if self.places:
            self._let_try()
        elif self._pause is not None:
            self._pause.cancel()

    def _end_attempt(self, place: _Place) -> None:
        self._trying -= place.is_trying
        place.is_trying = False

    def _begin_pause(self) -> None:
        if self._pause is None:
            pause_s = TRY_AGAIN_AFTER_S[min(self._failures, len(TRY_AGAIN_AFTER_S) - 1)]
            self._pause = asyncio.get_running_loop().call_later(pause_s, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._let_try()

    def _let_try(self) -> None:
        if self._pause is not None:
            return
        for place in self.places:
            if self._trying >= self._most_trying:
                return
            # Where it is done, its request has just given up.
            if not place.is_trying and not place.turn.done():
                place.is_trying = True
                self._trying += 1
                place.turn.set_result(None)


def _unavailable(sentence: Sentence) -> LegatoError:
    return LegatoError(Reason.UNAVAILABLE, sentence, retry_after_s=RETRY_AFTER_S)

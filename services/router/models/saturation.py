"""Limits concurrent chats per model: by what its server reports, and by a constant.

The time to the first piece depends on the request, and a reasoning model is silent at first, so latency is no evidence
of a queue.
"""

import asyncio
import contextlib
from functools import partial

from msgspec import Struct

from services.chassis.errors import LegatoError
from services.chassis.load.admission import NO_LIMIT, Gate, Permit
from services.chassis.timing.deadlines import Clock
from services.router.models.backoff import ACCEPTED_AFTER_S, LONGEST_BACKOFF_S, ModelBackoff
from services.router.models.learned_limit import LearnedLimit
from services.router.models.queue_watch import QueueWatch
from services.router.models.share import RouterShare


class ModelSaturation:
    """The concurrency control of one model."""

    def __init__(self, clock: Clock, concurrency: int | None = None) -> None:
        self.backoff = ModelBackoff(clock)
        # How many chats the server runs at once, by its refusals.
        self._learned = LearnedLimit(clock)
        self._refused = 0
        self.gate = Gate("The model", clock, most=concurrency or NO_LIMIT)
        # What this router may use of `concurrency`, if that is given.
        self.share: RouterShare | None = None
        # Polls the server's queue if it is published.
        self.queue_watch: QueueWatch | None = None
        # Of chats that wait until a probe of the backoff is accepted, refused or over.
        self._awaited_outcomes: list[asyncio.Future[None]] = []
        # Number of answers in progress.
        self.answering = 0

    def watch(self, queue_watch: QueueWatch) -> None:
        """Has the server's queue watched while chats run there."""
        self.queue_watch = queue_watch

    def limit_by(self, share: RouterShare) -> None:
        """Makes the share the limit."""
        self.share = share
        self.gate.limit_places(self._count_places)

    def _count_places(self) -> int:
        places = self.gate.most if self.share is None else self.share.places_of(self.gate)
        return int(min(places, self._learned.places))

    def has_room_for(self, key_id: str) -> bool:
        """Returns whether another chat of the key may enter, now or when the share has grown."""
        return self.gate.has_room_for(key_id) or (self.share is not None and self.share.may_grow)

    async def admit(self, key_id: str) -> "ModelUse":
        """Admits one chat, like `enter`, but waits before for the outcome of the probes of a backoff if no more may be
        sent, and for a larger share if the present one is used up, and may grow."""
        if self.backoff.is_on:
            await self._wait_for_probes(key_id)
        if self.share is not None:
            has_room = partial(self.gate.has_room_for, key_id)
            if not has_room() and self.share.may_grow:
                await self.share.wait(has_room)
        return self.enter(key_id)

    async def _wait_for_probes(self, key_id: str) -> None:
        """Returns when a probe of the key's backoff was accepted, or may have been, or when there is room for one.
        Raises SATURATED when one is refused."""
        if self._may_probe(key_id):
            return
        refusals = self.backoff.refusals(key_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACCEPTED_AFTER_S):
                while not self._may_probe(key_id) and self.backoff.refusals(key_id) <= refusals:
                    outcome = asyncio.get_running_loop().create_future()
                    self._awaited_outcomes.append(outcome)
                    await outcome
        if self.backoff.refusals(key_id) > refusals:
            raise self.gate.refuse(latest_s=self.backoff.left_s(key_id))

    def _may_probe(self, key_id: str) -> bool:
        running_of_key = self.gate.running_by_key.get(key_id, 0)
        return self.backoff.has_room(key_id, self.gate.running, running_of_key)

    def _report_outcome(self) -> None:
        """Wakes the chats that wait for the outcome of a probe."""
        awaited, self._awaited_outcomes = self._awaited_outcomes, []
        for outcome in awaited:
            if not outcome.done():
                outcome.set_result(None)

    def enter(self, key_id: str) -> "ModelUse":
        """Admits one chat; raises SATURATED."""
        running, running_of_key = self.gate.running, self.gate.running_by_key.get(key_id, 0)
        if not self.backoff.has_room(key_id, running, running_of_key):
            raise self.gate.refuse(latest_s=self.backoff.left_s(key_id))
        try:
            place = self.gate.acquire(key_id)
        except LegatoError:
            if self.share is not None:
                self.share.record(self.gate, refused=1)
            raise
        if self.share is not None:
            self.share.record(self.gate)
        if self.queue_watch is not None:
            self.queue_watch.wake()
        probe = self.backoff.send(key_id, running, running_of_key)
        return ModelUse(self, place, probe, running, self._refused)

    def begun(self, model_use: "ModelUse") -> None:
        self.answering += 1
        self.backoff.accepted(model_use.place.key_id)
        if self._awaited_outcomes:
            self._report_outcome()
        # Some of those that ran when it was sent may have been refused since.
        self._learned.accepted(min(model_use.beside, self.gate.running - 1))

    def gone(self, model_use: "ModelUse") -> None:
        if model_use.probe is not None:
            self.backoff.over(model_use.place.key_id, model_use.probe)
            self._report_outcome()
        self.answering -= model_use.has_begun

    def turned_away(self, retry_after_s: float | None, model_use: "ModelUse", account_id: str) -> LegatoError:
        """Records that the server refused a chat as full, which has left. Returns the error for the client."""
        key_id = model_use.place.key_id
        running, running_of_key = self.gate.running, self.gate.running_by_key.get(key_id, 0)
        # Some of those that it was sent beside have ended since, and some have been refused.
        beside = max(running, model_use.beside - (self._refused - model_use.refused_before))
        self._refused += 1
        self._learned.refused(beside, running_of_key, len(self.gate.running_by_key))
        if self._learned.is_known:
            self.gate.limit_places(self._count_places)
        if retry_after_s is None:
            refusal = self.gate.refuse()
        else:
            self.backoff.refused(retry_after_s, key_id, account_id, running, running_of_key)
            refusal = self.gate.refuse(min(retry_after_s, LONGEST_BACKOFF_S))
        self._report_outcome()
        return refusal


class ModelUse(Struct, eq=False):
    """One chat's use of a model, from admission to the end of its answer."""

    saturation: ModelSaturation
    place: Permit
    # Set if this chat is sent during a backoff, to find out whether it is over.
    probe: object | None
    # How many other chats ran when it was admitted.
    beside: int
    # How many the server had refused by then.
    refused_before: int
    has_begun: bool = False
    _has_left: bool = False

    def begun(self) -> None:
        self.has_begun = True
        self.saturation.begun(self)

    def release(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self.place.release()
        self.saturation.gone(self)

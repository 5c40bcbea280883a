"""Limits concurrent chats per model: by what its server reports, and by a constant.

The time to the first piece depends on the request, and a reasoning model is silent at first, so latency is no evidence
of a queue.
"""

from dataclasses import dataclass
from functools import partial

from services.chassis.errors import LegatoError
from services.chassis.load.admission import NO_LIMIT, Gate, Permit
from services.chassis.timing.deadlines import Clock
from services.router.routing.backoff import LONGEST_BACKOFF_S, ModelBackoff
from services.router.routing.model_share import RouterShare
from services.router.routing.queue_watch import QueueWatch


class ModelSaturation:
    """The concurrency control of one model."""

    def __init__(self, clock: Clock, concurrency: int | None = None) -> None:
        self.backoff = ModelBackoff(clock)
        self.gate = Gate("The model", clock, most=concurrency or NO_LIMIT)
        # What this router may use of `concurrency`, if that is given.
        self.share: RouterShare | None = None
        # Polls the server's queue if it is published.
        self.queue_watch: QueueWatch | None = None
        # Number of answers in progress.
        self.answering = 0

    def limit_by(self, share: RouterShare) -> None:
        """Makes the share the limit."""
        self.share = share
        self.gate.count_places = partial(share.places_of, self.gate)

    def has_room_for(self, key_id: str) -> bool:
        """Tells if another chat of the key may enter, now or when the share has grown."""
        return self.gate.has_room_for(key_id) or (self.share is not None and self.share.may_grow)

    async def wait_for_room(self, key_id: str) -> None:
        """Waits for a larger share if the present one is used up, and may grow."""
        has_room = partial(self.gate.has_room_for, key_id)
        if self.share is not None and not has_room() and self.share.may_grow:
            await self.share.wait(has_room)

    def enter(self, key_id: str) -> "ModelUse":
        """Admits one chat; raises SATURATED."""
        running, running_of_key = self.gate.running, self.gate.running_by_key.get(key_id, 0)
        if not self.backoff.has_room(key_id, running, running_of_key):
            # There may be room as soon as a probe is answered.
            raise self.gate.refuse(latest_s=self.backoff.left_s(key_id))
        try:
            place = self.gate.acquire(key_id)
        except LegatoError:
            if self.share is not None:
                self.share.note(self.gate, refused=1)
            raise
        if self.share is not None:
            self.share.note(self.gate)
        if self.queue_watch is not None:
            self.queue_watch.wake()
        return ModelUse(self, place, self.backoff.send(key_id, running, running_of_key))

    def begun(self, model_use: "ModelUse") -> None:
        self.answering += 1
        self.backoff.accepted(model_use.place.key_id)

    def gone(self, model_use: "ModelUse") -> None:
        if model_use.probe is not None:
            self.backoff.over(model_use.place.key_id, model_use.probe)
        self.answering -= model_use.has_begun

    def turned_away(self, retry_after_s: float | None, key_id: str, account_id: str) -> LegatoError:
        """Records that the server refused a chat of this key as full. Returns the error for the client."""
        if retry_after_s is None:
            return self.gate.refuse()
        running_of_key = self.gate.running_by_key.get(key_id, 0)
        self.backoff.refused(retry_after_s, key_id, account_id, self.gate.running, running_of_key)
        return self.gate.refuse(min(retry_after_s, LONGEST_BACKOFF_S))


@dataclass(slots=True, eq=False, repr=False)
class ModelUse:
    """One chat's use of a model, from admission to the end of its answer."""

    saturation: ModelSaturation
    place: Permit
    # Set if this chat is sent during a backoff, to find out whether it is over.
    probe: object | None
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

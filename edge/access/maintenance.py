"""Maintenance mode, during which no new chats are admitted."""

from edge.backends.auth import Verified
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence


class MaintenanceMode:
    def __init__(self) -> None:
        self._epoch = 0
        self._current = pb.Maintenance()

    @property
    def is_on(self) -> bool:
        return self._current.is_on

    def update(self, answer: pb.WatchResponse | Verified) -> None:
        """Takes over the state of an answer, unless a newer one has come already. An auth of an older version does not
        send it."""
        if answer.HasField("maintenance") and answer.epoch >= self._epoch:
            self._epoch = answer.epoch
            self._current = answer.maintenance

    def raise_if_on(self) -> None:
        if self._current.is_on:
            current = self._current
            raise LegatoError(
                Reason.MAINTENANCE, Sentence.verbatim(current.message), retry_after_s=current.retry_after_s
            )

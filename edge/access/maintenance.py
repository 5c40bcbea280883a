"""Whether new chats are let in, as auth says with every heartbeat and with every key that it verifies."""

from protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason


class MaintenanceMode:
    def __init__(self) -> None:
        self._epoch = 0
        self._current = pb.Maintenance()

    @property
    def is_on(self) -> bool:
        return self._current.is_on

    def update(self, answer: pb.WatchResponse | pb.VerifyResponse) -> None:
        """One that was read before another that has come already does not count. An auth of an older version says
        nothing of maintenance."""
        if answer.HasField("maintenance") and answer.epoch >= self._epoch:
            self._epoch = answer.epoch
            self._current = answer.maintenance

    def raise_if_on(self) -> None:
        if self._current.is_on:
            current = self._current
            raise LegatoError(Reason.MAINTENANCE, current.message, retry_after_s=current.retry_after_s)

"""Remembers settlements without a hold, which edges offer again and again: for the operator who has them booked.

After a restore, edges have requests in their journals that the ledger does not know. A restart forgets nothing for
long, because each is offered every 30 s.
"""

from typing import Final

from services.chassis.timing.deadlines import Clock
from services.metering.credit.records import Settle

KEPT_S: Final = 120.0
# More than two edges can have in their journals.
MOST: Final = 32_768


class UnmatchedSettlements:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By request, with when it was last offered.
        self._offered: dict[str, tuple[Settle, float]] = {}

    def record(self, settle: Settle) -> None:
        if settle.request_id in self._offered or len(self._offered) < MOST:
            self._offered[settle.request_id] = settle, self._clock.elapsed_s()

    def forget(self, settle: Settle) -> None:
        self._offered.pop(settle.request_id, None)

    def list(self) -> list[Settle]:
        """Returns those that edges still offer."""
        since_s = self._clock.elapsed_s() - KEPT_S
        self._offered = {request_id: kept for request_id, kept in self._offered.items() if kept[1] > since_s}
        return [settle for settle, _ in self._offered.values()]

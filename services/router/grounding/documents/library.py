"""The notes and documents of accounts, with a cache of which accounts have any, so that the others skip the lookup."""

from typing import Final

from services.chassis.database.database import Database
from services.chassis.timing.deadlines import Clock
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.documents.notes import Notes
from services.router.grounding.records import Holding, to_micros
from services.router.grounding.sealing import Sealer
from services.router.grounding.store.closed_accounts import close_account
from services.router.grounding.store.index import find_holding

# Cache lifetime; bounds the delay after a change on another replica.
BELIEVED_S: Final = 2.0
REMEMBERED_MOST: Final = 10_000


class Library:
    def __init__(
        self, database: Database, sealer: Sealer, clock: Clock, *, memory: bool = True, attachments: bool = True
    ) -> None:
        """Opens what is configured; the other is None."""
        self._notes, self._attachments = Notes(database, sealer, clock), Attachments(database, sealer, clock)
        self.notes = self._notes if memory else None
        self.attachments = self._attachments if attachments else None
        self._database = database
        self._clock = clock
        # Entries with their expiry time.
        self._known: dict[str, tuple[Holding, float]] = {}

    async def holding_of(self, account_id: str) -> Holding:
        known = self._known.get(account_id)
        if known is not None and self._clock.elapsed_s() < known[1]:
            return known[0]
        believed_until_s = self._clock.elapsed_s() + BELIEVED_S
        holding = await self._database.read(find_holding, account_id)
        if len(self._known) >= REMEMBERED_MOST:
            self._known.clear()
        self._known[account_id] = (holding, believed_until_s)
        return holding

    async def erase_account(self, account_id: str) -> tuple[int, int]:
        """Erases the notes and documents of an account, whatever is configured, and takes no more for it; returns how
        many of each there were."""
        await self._database.write(close_account, account_id, to_micros(self._clock.now()))
        erased = await self._notes.remove(account_id), await self._attachments.remove_all(account_id)
        self.invalidate(account_id)
        return erased

    def invalidate(self, account_id: str) -> None:
        """Has an account read anew after a change."""
        self._known.pop(account_id, None)

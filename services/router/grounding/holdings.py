"""A cache of which accounts have notes or documents, so that the others skip the lookup."""

from dataclasses import dataclass
from typing import Final

from services.chassis.database.database import Database
from services.chassis.timing.deadlines import Clock
from services.router.grounding.store.index import find_holding

# Cache lifetime; bounds the delay after a change on another replica.
BELIEVED_S: Final = 2.0
REMEMBERED_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Holding:
    notes: bool
    attachments: bool


NOTHING: Final = Holding(notes=False, attachments=False)


class Holdings:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # Entries with their expiry time.
        self._known: dict[str, tuple[Holding, float]] = {}

    async def of(self, account_id: str) -> Holding:
        known = self._known.get(account_id)
        if known is not None and self._clock.elapsed_s() < known[1]:
            return known[0]
        believed_until_s = self._clock.elapsed_s() + BELIEVED_S
        found = await self._database.read(lambda connection: find_holding(connection, account_id))
        if len(self._known) >= REMEMBERED_MOST:
            self._known.clear()
        holding = Holding(*found)
        self._known[account_id] = (holding, believed_until_s)
        return holding

    def look_again(self, account_id: str) -> None:
        """Invalidates an account after a change."""
        self._known.pop(account_id, None)

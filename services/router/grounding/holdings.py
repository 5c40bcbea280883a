"""Which accounts keep anything at all: most chats belong to one that does not, and must not pay for a look."""

from dataclasses import dataclass
from typing import Final

from services.chassis.database.database import Database
from services.chassis.timing.clock import Clock
from services.router.grounding.store.index import find_holding

# Another replica may take an account's first note: so much later it counts here too.
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
        # With the time until which it is believed.
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
        """Something was added here, or removed."""
        self._known.pop(account_id, None)

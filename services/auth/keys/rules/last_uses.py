"""Records the hour in which a key was last used, as callers report it with their pings."""

from services.auth.core.checks import is_id
from services.auth.core.store import Connection
from services.auth.core.times import hour_of
from services.auth.keys.rules.checks import KEYS_AT_ONCE_MOST
from services.auth.keys.rules.reports import Reports
from services.auth.keys.store.keys import record_uses


class LastUses(Reports[str]):
    WAITING_MOST = 100_000
    AT_ONCE_MOST = KEYS_AT_ONCE_MOST
    FAILURE = "key_uses.not_written"

    def is_valid(self, report: str) -> bool:
        return is_id(report)

    def write(self, connection: Connection, reports: list[str]) -> None:
        record_uses(connection, reports, hour_of(self.now_us()))

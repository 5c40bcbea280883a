"""Closed and pruned months: what is still to be done for them, and whether the books can be proved from them."""

import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.audit.auditor import audit
from services.metering.audit.closed_months import audit_months, entry_violations, read_closed
from services.metering.credit.calendar import month_start_us, months_before
from services.metering.credit.ledger.closings import Closing
from services.metering.credit.records import DAY_US
from services.metering.credit.store.closings import LEDGER_COLUMNS, read_closings, read_retention
from services.metering.credit.store.tables import holds, ledger, usage_hours
from services.metering.months.archive import ArchiveWrong, archive_file, read_archive
from services.metering.settings import MeteringSettings

# As short as the settings allow.
POLICY: Final = MeteringSettings(
    retention_close_after_days=3, retention_holds_days=1, retention_ledger_months=1, retention_usage_months=1
)
SETTINGS: Final = {
    "LEGATO_RETENTION_INTERVAL_S": "0.1",
    "LEGATO_RETENTION_CLOSE_AFTER_DAYS": str(POLICY.retention_close_after_days),
    "LEGATO_RETENTION_HOLDS_DAYS": str(POLICY.retention_holds_days),
    "LEGATO_RETENTION_LEDGER_MONTHS": str(POLICY.retention_ledger_months),
    "LEGATO_RETENTION_USAGE_MONTHS": str(POLICY.retention_usage_months),
    # Chats that run while a month ends are not given up.
    "LEGATO_HOLD_GRACE_S": str(300 * 24 * 3600),
}
_ACCOUNT: Final = LEDGER_COLUMNS.index("account_id")


class Archives:
    """The entries of pruned months, as the files have them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, dict[str, list[Sequence[Any]]]] = {}

    def entries_of(self, account_id: str) -> Iterator[Sequence[Any]]:
        for file in sorted(self.folder.glob("ledger-*.jsonl.gz")):
            if file not in self._read:
                self._read[file] = _by_account(file)
            yield from self._read[file].get(account_id, ())

    def unfinished(self) -> list[str]:
        return [file.name for file in self.folder.glob(".ledger-*")]


def _by_account(file: Path) -> dict[str, list[Sequence[Any]]]:
    found: defaultdict[str, list[Sequence[Any]]] = defaultdict(list)
    with gzip.open(file) as lines:
        for line in lines:
            row = msgspec.json.decode(line)
            found[row[_ACCOUNT]].append(row)
    return found


def find_due(connection: sa.Connection, now_us: int) -> str:
    """Says what is to be closed or pruned at this time, and is not yet."""
    closings, state = read_closings(connection), read_retention(connection)
    if not closings or closings[-1].ends_us != month_start_us(now_us):
        return f"{len(closings)} months are closed, and not the last one"
    before_us = months_before(now_us, POLICY.retention_ledger_months).start_us
    if before_us > closings[0].month_us:
        if (state.ledger_pruned_before_us, state.usage_summed_before_us) != (before_us, before_us):
            return f"{state} is not yet at {before_us}"
        if _exists(connection, ledger, ledger.c.recorded_at_us < before_us):
            return "pruned entries are still there"
        hour_us = usage_hours.c.hour_us
        months = [each.month_us for each in closings]
        if _exists(connection, usage_hours, hour_us < before_us, hour_us.not_in(months)):
            return "usage is not summed up"
    is_old = holds.c.resolved_at_us < min(closings[-1].ends_us, now_us - (POLICY.retention_holds_days + 1) * DAY_US)
    if _exists(connection, holds, holds.c.state.in_(["settled", "void"]), is_old):
        return "old holds are still there"
    return ""


def _exists(connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> bool:
    return connection.execute(sa.select(sa.literal(1)).select_from(table).where(*where).limit(1)).first() is not None


def _find_archive_violations(archives: Archives, closing: Closing) -> Iterator[str]:
    try:
        _, digest = read_archive(archive_file(archives.folder, closing.month))
    except ArchiveWrong as error:
        yield str(error)
    else:
        yield from entry_violations(closing, digest)


async def find_violations(database: Database, archives: Archives) -> list[str]:
    """Runs the audit, and verifies the entries of every month: in the database, or in its archive."""
    found = await audit(database) + await audit_months(database, None)
    closed = await database.read(read_closed)
    for closing in closed.closings:
        if closing.month_us < closed.pruned_before_us:
            found += _find_archive_violations(archives, closing)
    return found + [f"{name} was left behind" for name in archives.unfinished()]

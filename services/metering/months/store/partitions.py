"""The monthly partitions of PostgreSQL's ledger: created ahead, detached and dropped once their months were pruned.

None of these statements makes a chat wait: a partition is attached and detached under locks that writers of other
partitions do not conflict with.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from services.metering.credit.calendar import CalendarMonth, month_of
from services.metering.store import Connection

# The table from before there were partitions, with everything up to the month of the migration.
FIRST_PARTITION: Final = "ledger_first"
RARE_BY_ACCOUNT: Final = "account_id, recorded_at_us, entry_id) WHERE kind <> 'charge'"
_BOUND: Final = re.compile(r"TO \('?(\d+)'?\)")


class Partition(NamedTuple):
    name: str
    ends_us: int
    # Its detachment was interrupted.
    is_detaching: bool


def months_from(moment: datetime, count: int) -> list[CalendarMonth]:
    """Returns the month of a moment and those after it."""
    months = [month_of(round(moment.timestamp()) * 1_000_000)]
    while len(months) < count:
        months.append(months[-1].next)
    return months


def partition_name(month: CalendarMonth) -> str:
    return f"ledger_{str(month).replace('-', '_')}"


def create_partition(connection: Connection, month: CalendarMonth, fill: Callable[[str], None] | None = None) -> None:
    """Creates and attaches the partition of a month, in the caller's transaction. `fill` may write to the table, whose
    name it gets, before it has indexes."""
    name = partition_name(month)
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE ledger INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    if fill is not None:
        fill(name)
    for statement in (
        f"ALTER TABLE {name} ADD PRIMARY KEY (entry_id)",
        f"CREATE UNIQUE INDEX {name}_books_once ON {name} (kind, request_id)",
        f"CREATE INDEX {name}_by_account ON {name} (account_id, entry_id)",
        f"CREATE INDEX {name}_credits_by_account ON {name} ({RARE_BY_ACCOUNT}",
        f"ALTER TABLE ledger ATTACH PARTITION {name} FOR VALUES FROM ({month.start_us}) TO ({month.ends_us})",
    ):
        connection.exec_driver_sql(statement)
    guard_partition(connection, name)


def guard_partition(connection: Connection, name: str) -> None:
    """Refuses changes of entries, also of a partition by its own name."""
    connection.exec_driver_sql(
        f"CREATE TRIGGER {name}_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {name}"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )


def list_partitions(connection: Connection) -> list[Partition]:
    """Returns the partitions, the oldest first."""
    rows = connection.exec_driver_sql(
        "SELECT child.relname, pg_get_expr(child.relpartbound, child.oid), inhdetachpending FROM pg_inherits"
        " JOIN pg_class AS child ON child.oid = inhrelid WHERE inhparent = 'ledger'::regclass"
    )
    found = [Partition(name, _ends_us(bound), is_detaching) for name, bound, is_detaching in rows]
    return sorted(found, key=lambda each: each.ends_us)


def _ends_us(bound: str) -> int:
    [ends_us] = _BOUND.findall(bound)
    return int(ends_us)


def create_partitions_ahead(connection: Connection, now_us: int, months_ahead: int) -> int:
    """Creates what is missing up to so many months ahead, also of the months since the last one: the service may have
    been stopped for long. Returns how many whole months there are after this one."""
    month = month_of(max(partition.ends_us for partition in list_partitions(connection)))
    last = month_of(now_us)
    for _ in range(months_ahead):
        last = last.next
    while month.start_us <= last.start_us:
        create_partition(connection, month)
        month = month.next
    return months_ahead


def drop_partitions(connection: Connection, before_us: int) -> Iterator[str]:
    """Detaches and drops the partitions whose entries were all recorded before a time; yields each name. The connection
    must commit each statement by itself."""
    for partition in list_partitions(connection):
        if partition.ends_us <= before_us:
            how = "FINALIZE" if partition.is_detaching else "CONCURRENTLY"
            connection.exec_driver_sql(f"ALTER TABLE ledger DETACH PARTITION {partition.name} {how}")
    # Also those that were detached when a process was killed.
    orphans = connection.exec_driver_sql(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        " AND NOT relispartition AND (relname ~ '^ledger_[0-9]{4}_[0-9]{2}$' OR relname = %s) ORDER BY relname",
        (FIRST_PARTITION,),
    )
    for (name,) in orphans.fetchall():
        connection.exec_driver_sql(f"DROP TABLE {name}")
        yield name

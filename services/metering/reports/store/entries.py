"""Reads the entries of the ledger that statistics are made of, and those that they do not have yet."""

from collections.abc import Iterable, Iterator
from typing import Final

import sqlalchemy as sa

from services.metering.credit.records import CHARGES
from services.metering.credit.store.tables import holds, ledger, retention
from services.metering.reports.additions import Addition, SummedEntry, additions_of
from services.metering.store.schema import AnyRow
from services.rules.usage import COLUMNS, Usage

_OF_HOLD: Final = ("model_calls", "first_token_ms", "duration_ms", "end")
_NAMES: Final = SummedEntry._fields[:-1]
AFTER_ID: Final = sa.bindparam("after_id", type_=sa.BigInteger)
# Only holds have what became of a request.
SUMMED_ENTRIES: Final = (
    sa.select(
        *(holds.c[name] if name in _OF_HOLD else ledger.c[name] for name in _NAMES),
        *(ledger.c[name] for name in COLUMNS),
    )
    .select_from(ledger)
    .outerjoin(
        holds,
        sa.and_(
            holds.c.request_id == ledger.c.request_id,
            sa.or_(*(ledger.c.kind == sa.literal_column(f"'{kind}'") for kind in CHARGES)),
        ),
    )
    .where(ledger.c.entry_id > AFTER_ID)
    .order_by(ledger.c.entry_id)
)
_MOST: Final[sa.BindParameter[int]] = sa.bindparam("most")
_RECENT: Final = SUMMED_ENTRIES.limit(_MOST)
_RECENT_OF_ACCOUNT: Final = SUMMED_ENTRIES.where(ledger.c.account_id == sa.bindparam("account_id")).limit(_MOST)


def to_entry(row: AnyRow) -> SummedEntry:
    return SummedEntry._make((*row[: len(_NAMES)], Usage(*row[len(_NAMES) :])))


def read_reported_id(connection: sa.Connection) -> int:
    """Returns the id of the last entry that the statistics have."""
    return int(connection.scalar(sa.select(retention.c.reported_to_id)) or 0)


def read_recent(connection: sa.Connection, most: int, account_id: str = "") -> list[Addition] | None:
    """Returns what the entries add that the statistics do not have yet, of all accounts or one; None if there are more
    than `most` of them."""
    force_index_plans(connection)
    values = {"after_id": read_reported_id(connection), "most": most + 1, "account_id": account_id}
    rows = connection.execute(_RECENT_OF_ACCOUNT if account_id else _RECENT, values).all()
    return None if len(rows) > most else [*_all_additions(rows)]


def _all_additions(rows: Iterable[AnyRow]) -> Iterator[Addition]:
    for row in rows:
        yield from additions_of(to_entry(row))


def force_index_plans(connection: sa.Connection) -> None:
    """Has PostgreSQL plan the rest of the transaction with indexes, whatever it thinks of the size of a partition."""
    if connection.dialect.name == "postgresql":
        names = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
        connection.exec_driver_sql("SELECT " + ", ".join(f"set_config('{name}', 'off', true)" for name in names))

"""Reads the statistics of one account: of some keys, or of all keys together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.metering.reports.additions import NOTHING
from services.metering.reports.spans import Span
from services.metering.reports.store.tables import OUTCOMES, usage_days
from services.metering.store.schema import AnyQuery, AnyRow, total

_ROW: Final = usage_days.c
_IS_MEANT: Final = (
    _ROW.of_key == sa.bindparam("of_key"),
    _ROW.span == sa.bindparam("span"),
    _ROW.start_us.in_(sa.bindparam("starts_us", expanding=True)),
    _ROW.account_id == sa.bindparam("account_id"),
)
_IS_OF_KEYS: Final = _ROW.key_id.in_(sa.bindparam("key_ids", expanding=True))
# Of the rows of a class, one for each model, a single one has any.
_HAS_OUTCOMES: Final = sa.or_(*(_ROW[name] != NOTHING for name in OUTCOMES))
_ALL: Final = sa.select(*(_ROW[name] for name in ("start_us", "key_id", "class_id", *OUTCOMES))).where(*_IS_MEANT)
_OUTCOMES: Final = _ALL.where(_HAS_OUTCOMES)
_FAILED: Final = _ALL.where(_ROW.failures != NOTHING)
_REQUESTS: Final = (
    sa.select(_ROW.start_us, _ROW.class_id, total(_ROW.requests))
    .where(*_IS_MEANT)
    .group_by(_ROW.start_us, _ROW.class_id)
)
_COSTS: Final = (
    sa.select(_ROW.key_id, total(_ROW.requests), total(_ROW.charged_nanos)).where(*_IS_MEANT).group_by(_ROW.key_id)
)

Starts = Mapping[Span, Sequence[int]]


class OutcomesRow(NamedTuple):
    start_us: int
    # Empty: all keys together.
    key_id: str
    class_id: str
    outcomes: tuple[str, ...]


def read_outcomes(
    connection: sa.Connection, account_id: str, starts: Starts, key_ids: Sequence[str] = ()
) -> Iterable[OutcomesRow]:
    """Returns the rows with outcomes of some spans: of each of these keys, or of all together."""
    return map(_to_row, _read(connection, _OUTCOMES, account_id, starts, key_ids, of_key=bool(key_ids)))


def read_failed(connection: sa.Connection, account_id: str, starts: Starts) -> Iterable[OutcomesRow]:
    """Returns the rows of all keys, each of one, with chats that failed."""
    return map(_to_row, _read(connection, _FAILED, account_id, starts, of_key=True))


def read_requests(
    connection: sa.Connection, account_id: str, starts: Starts, key_ids: Sequence[str] = ()
) -> Iterable[tuple[int, str, int]]:
    """Returns rows of start, class, and how many requests were charged: of these keys, or of all."""
    rows = _read(connection, _REQUESTS, account_id, starts, key_ids, of_key=bool(key_ids))
    return ((start_us, class_id, requests) for start_us, class_id, requests in rows)


def read_key_costs(connection: sa.Connection, account_id: str, starts: Starts) -> Iterable[tuple[str, int, int]]:
    """Returns rows of key, requests and what was charged for them; there may be several rows of a key."""
    rows = _read(connection, _COSTS, account_id, starts, of_key=True)
    return ((key_id, requests, charged_nanos) for key_id, requests, charged_nanos in rows)


def _to_row(row: AnyRow) -> OutcomesRow:
    start_us, key_id, class_id, *outcomes = row
    return OutcomesRow(start_us, key_id, class_id, tuple(outcomes))


def _read(
    connection: sa.Connection,
    query: AnyQuery,
    account_id: str,
    starts: Starts,
    key_ids: Sequence[str] = (),
    *,
    of_key: bool,
) -> Iterable[AnyRow]:
    if key_ids:
        query = query.where(_IS_OF_KEYS)
    for span, starts_us in starts.items():
        given = {"of_key": of_key, "account_id": account_id, "span": span, "starts_us": starts_us}
        yield from connection.execute(query, given | ({"key_ids": list(key_ids)} if key_ids else {}))

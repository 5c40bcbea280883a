"""Reads the statistics of one account: of some keys, or of all keys together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.metering.reports.additions import NOTHING
from services.metering.reports.spans import Span
from services.metering.reports.store.tables import OUTCOMES, usage_days
from services.metering.store.schema import total

_IS_MEANT: Final = (
    usage_days.c.of_key == sa.bindparam("of_key"),
    usage_days.c.span == sa.bindparam("span"),
    usage_days.c.start_us.in_(sa.bindparam("starts_us", expanding=True)),
    usage_days.c.account_id == sa.bindparam("account_id"),
)
_IS_OF_KEYS: Final = usage_days.c.key_id.in_(sa.bindparam("key_ids", expanding=True))
_COLUMNS: Final = [usage_days.c[name] for name in ("start_us", "key_id", "class_id", "requests", *OUTCOMES)]
_ALL: Final = sa.select(*_COLUMNS).where(*_IS_MEANT)
_OF_KEYS: Final = _ALL.where(_IS_OF_KEYS)
_FAILED: Final = _ALL.where(usage_days.c.failures != NOTHING)
_COSTS: Final = (
    sa.select(usage_days.c.key_id, total(usage_days.c.requests), total(usage_days.c.charged_nanos))
    .where(*_IS_MEANT)
    .group_by(usage_days.c.key_id)
)


class DayRow(NamedTuple):
    start_us: int
    # Empty: all keys together.
    key_id: str
    class_id: str
    requests: int
    outcomes: tuple[str, ...]


Starts = Mapping[Span, Sequence[int]]


def read_days(
    connection: sa.Connection, account_id: str, starts: Starts, key_ids: Sequence[str] = ()
) -> Iterable[DayRow]:
    """Returns the rows of some spans: of each of these keys, or of all together."""
    query = _OF_KEYS if key_ids else _ALL
    return _read(connection, query, account_id, starts, of_key=bool(key_ids), key_ids=list(key_ids))


def read_failed_days(connection: sa.Connection, account_id: str, starts: Starts) -> Iterable[DayRow]:
    """Returns the rows of all keys, each of one, with chats that failed."""
    return _read(connection, _FAILED, account_id, starts, of_key=True)


def _read(
    connection: sa.Connection, query: sa.Select[Any], account_id: str, starts: Starts, **values: Any
) -> Iterable[DayRow]:
    for span, starts_us in starts.items():
        given = values | {"account_id": account_id, "span": span, "starts_us": starts_us}
        for *labels, first_token, duration, failures in connection.execute(query, given):
            yield DayRow._make((*labels, (first_token, duration, failures)))


def read_key_costs(connection: sa.Connection, account_id: str, starts: Starts) -> Iterable[tuple[str, int, int]]:
    """Returns rows of key, requests and what was charged for them; there may be several rows of a key."""
    for span, starts_us in starts.items():
        given = {"account_id": account_id, "span": span, "starts_us": starts_us, "of_key": True}
        yield from map(tuple, connection.execute(_COSTS, given))

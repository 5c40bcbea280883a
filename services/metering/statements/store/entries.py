"""Reads an account's ledger entry by entry, and the receipts of its requests.

The order is that of the entries' ids: an account's entries are written under its lock, so that a later one has a higher
id. A period is a range of ids, which a search finds by the times of entries.
"""

from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.metering.credit.prices import Price
from services.metering.credit.records import CHARGES, HOUR_US, Entry, Hold
from services.metering.credit.store.balances import read_request, read_requests_of_entries
from services.metering.credit.store.closings import OpeningBalance, find_last_before, read_opening, read_retention
from services.metering.credit.store.tables import IS_LIVE, IS_RARE, holds, is_its_price, ledger, prices, usage_hours
from services.metering.store.schema import AnyRow, total

# The database's clock may have been set back by so much, and sums of an hour's charges are still exact.
CLOCK_STEP_US: Final = 60_000_000

_PRICE: Final = [column for column in prices.c if column.name not in ("version", "class_id")]

_CHARGED: Final = (
    sa.select(ledger.c.entry_id, ledger.c.request_id, *holds.c, *_PRICE)
    .select_from(
        ledger.outerjoin(holds, holds.c.request_id == ledger.c.request_id).outerjoin(prices, is_its_price(ledger))
    )
    .where(
        ledger.c.account_id == sa.bindparam("account_id"),
        ledger.c.entry_id > sa.bindparam("after_id"),
        ledger.c.entry_id <= sa.bindparam("last_id"),
        sa.or_(*(ledger.c.kind == kind for kind in CHARGES)),
        # A later charge of the same request counts none.
        ledger.c.requests == 1,
    )
    .order_by(ledger.c.entry_id.desc())
    .limit(sa.bindparam("most"))
)


class StatementEntry(NamedTuple):
    entry_id: int
    entry: Entry
    # After it, where that is listed.
    balance_nanos: int = 0


class Receipt(NamedTuple):
    hold: Hold
    # None if the request was voided before it was reserved.
    price: Price | None


class RequestFilter(NamedTuple):
    """The keys and classes whose requests are meant; empty for all."""

    key_ids: tuple[str, ...] = ()
    class_ids: tuple[str, ...] = ()


def find_last_of_account(connection: sa.Connection, account_id: str, at_us: int) -> int:
    """Returns the id of the last entry of an account before a time, or one up to which there is no other."""
    return find_last_before(connection, at_us, ledger.c.account_id == account_id)


def read_balance_after(connection: sa.Connection, account_id: str, last_id: int, at_us: int) -> int:
    """Returns the balance after the entries up to `last_id`, the last before `at_us`, without reading all of them: the
    closing of the month before has its sum, and the hourly counters have the sums of later charges. Only those near the
    limits of the hour are read."""
    hour_us = at_us - at_us % HOUR_US
    opening = read_opening(connection, account_id, hour_us)
    if hour_us < read_retention(connection).usage_marked_before_us:
        return opening.account.balance_nanos + _sum_entries(connection, account_id, opening, last_id)
    near = (
        find_last_of_account(connection, account_id, hour_us - CLOCK_STEP_US),
        find_last_of_account(connection, account_id, at_us + CLOCK_STEP_US),
    )
    is_own, nanos = ledger.c.account_id == account_id, ledger.c.customer_nanos
    # A sum, so that SQLite does not read all entries up to it.
    is_before, is_earlier_hour = ledger.c.entry_id + 0 <= last_id, ledger.c.hour_us < hour_us
    charges = sa.case(
        (sa.and_(is_before, ~is_earlier_hour), nanos), (sa.and_(~is_before, is_earlier_hour), -nanos), else_=0
    )
    is_near = sa.and_(ledger.c.kind == "charge", ledger.c.entry_id > near[0], ledger.c.entry_id <= near[1])
    recorded_us, opened_us = ledger.c.recorded_at_us, opening.at_us
    is_near_opening = sa.and_(recorded_us >= opened_us - CLOCK_STEP_US, recorded_us < opened_us)
    queries = (
        # Everything but charges, one by one.
        sa.select(total(nanos)).where(is_own, IS_RARE, is_before, recorded_us >= opened_us),
        sa.select(total(-nanos)).where(is_own, IS_RARE, ~is_before, is_near_opening),
        # The charges of earlier hours. Counters include late charges.
        sa.select(total(-usage_hours.c.cost_nanos)).where(
            usage_hours.c.account_id == account_id, usage_hours.c.hour_us < hour_us, usage_hours.c.hour_us >= opened_us
        ),
        sa.select(total(-nanos)).where(
            is_own, IS_RARE, ledger.c.kind == "late_charge", is_earlier_hour, ledger.c.hour_us >= opened_us
        ),
        # The charges since then, and the few that are on the other side of the hour than their id.
        sa.select(total(charges)).where(is_own, is_near),
    )
    return opening.account.balance_nanos + sum(connection.execute(query).scalar_one() for query in queries)


def _sum_entries(connection: sa.Connection, account_id: str, opening: OpeningBalance, last_id: int) -> int:
    """Sums up entries one by one, where the hours of their month are summed up."""
    query = sa.select(total(ledger.c.customer_nanos)).where(
        ledger.c.account_id == account_id,
        ledger.c.entry_id > find_last_of_account(connection, account_id, opening.at_us - CLOCK_STEP_US),
        ledger.c.entry_id <= last_id,
        ledger.c.recorded_at_us >= opening.at_us,
    )
    nanos: int = connection.execute(query).scalar_one()
    return nanos


def read_entries(
    connection: sa.Connection, account_id: str, after_id: int, last_id: int, *, newest_first: bool, most: int
) -> list[StatementEntry]:
    """Returns entries with ids above `after_id`, up to `last_id`."""
    order = ledger.c.entry_id.desc() if newest_first else ledger.c.entry_id
    query = (
        sa.select(ledger)
        .where(ledger.c.account_id == account_id, ledger.c.entry_id > after_id, ledger.c.entry_id <= last_id)
        .order_by(order)
        .limit(most)
    )
    return [StatementEntry(entry_id, Entry(*fields)) for entry_id, *fields in connection.execute(query)]


def read_charged(
    connection: sa.Connection, account_id: str, after_id: int, last_id: int, most: int, chosen: RequestFilter
) -> list[tuple[int, Receipt]]:
    """Returns the charged requests whose first charge has an id in the range, with that id, the last first."""
    values = {"account_id": account_id, "after_id": after_id, "last_id": last_id, "most": most}
    query = _CHARGED.where(*_chosen(ledger, chosen)) if any(chosen) else _CHARGED
    rows = connection.execute(query, values).all()
    # Of requests whose holds were pruned.
    pruned = read_requests_of_entries(connection, account_id, [row[1] for row in rows if row[2] is None])
    return [(entry_id, _receipt(fields, pruned.get(request_id))) for entry_id, request_id, *fields in rows]


def find_searched(connection: sa.Connection, account_id: str, after_id: int, last_id: int, most: int) -> AnyRow | None:
    """Returns the id and the time of the entry at which a search of so many entries ends; None if it sees them all."""
    query = (
        sa.select(ledger.c.entry_id, ledger.c.recorded_at_us)
        .where(ledger.c.account_id == account_id, ledger.c.entry_id > after_id, ledger.c.entry_id <= last_id)
        .order_by(ledger.c.entry_id.desc())
        .offset(most - 1)
        .limit(1)
    )
    return connection.execute(query).one_or_none()


def find_last_use(connection: sa.Connection, account_id: str, at_us: int, chosen: RequestFilter) -> int | None:
    """Returns the last hour up to a time in which requests were charged that are chosen; None if there is none."""
    query = sa.select(sa.func.max(usage_hours.c.hour_us)).where(
        usage_hours.c.account_id == account_id, usage_hours.c.hour_us <= at_us, *_chosen(usage_hours, chosen)
    )
    hour_us: int | None = connection.execute(query).scalar_one()
    return hour_us


def read_running(
    connection: sa.Connection,
    account_id: str,
    start_us: int | None,
    end_us: int | None,
    most: int,
    chosen: RequestFilter,
) -> list[Receipt]:
    """Returns the requests that run, of those reserved in the period, the newest first."""
    query = sa.select(*holds.c, *_PRICE).select_from(holds.outerjoin(prices, is_its_price(holds)))
    query = query.where(IS_LIVE, holds.c.account_id == account_id, *_chosen(holds, chosen))
    if start_us is not None:
        query = query.where(holds.c.reserved_at_us >= start_us)
    if end_us is not None:
        query = query.where(holds.c.reserved_at_us < end_us)
    query = query.order_by(holds.c.reserved_at_us.desc(), holds.c.request_id).limit(most)
    return [_receipt(list(row)) for row in connection.execute(query)]


def read_receipt(connection: sa.Connection, account_id: str, request_id: str) -> Receipt | None:
    """Returns one request, charged or not; None if there is none, or it is of another account."""
    hold = read_request(connection, account_id, request_id)
    if hold is None:
        return None
    its_price = (prices.c.version == hold.price_version, prices.c.class_id == hold.class_id)
    price = connection.execute(sa.select(*_PRICE).where(*its_price)).one_or_none()
    return Receipt(hold, None if price is None else Price(*price))


def _chosen(table: sa.Table, chosen: RequestFilter) -> list[sa.ColumnElement[bool]]:
    names = (("key_id", chosen.key_ids), ("class_id", chosen.class_ids))
    return [table.c[name].in_(ids) for name, ids in names if ids]


def _receipt(fields: list[Any], pruned: Hold | None = None) -> Receipt:
    """Builds a receipt from the columns of a hold and of its price; of a hold that was pruned there are none."""
    hold, amounts = pruned or Hold(*fields[: -len(_PRICE)]), fields[-len(_PRICE) :]
    return Receipt(hold, None if amounts[0] is None else Price(*amounts))

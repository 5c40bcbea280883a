"""What the audit asks of the rows. Each check gives the rows that contradict another table, or themselves.

Two tables that must agree are added up together, one of them negated: whatever does not come to zero is a violation,
and a row that is missing on either side is one too.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from services.metering.prices import Price
from services.metering.records import CHARGES
from services.metering.store.tables import accounts, claims, holds, ledger, price_versions, prices, usage_hours

_BILLED = (*CHARGES, "loss")


def uncovered_accounts(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Account, balance and held, where not 0 <= held <= balance."""
    held, balance = accounts.c.held_nanos, accounts.c.balance_nanos
    query = sa.select(accounts.c.account_id, balance, held).where(sa.or_(held < 0, held > balance))
    return _stream(connection, query)


def balances_against_ledger(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Account, and how much its balance is above the sum of its entries."""
    both = sa.union_all(
        sa.select(accounts.c.account_id, accounts.c.balance_nanos.label("nanos")),
        sa.select(ledger.c.account_id, -ledger.c.customer_nanos),
    ).subquery()
    return _stream(connection, _unequal(both, "account_id"))


def held_against_holds(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Account, and how much it holds above the sum of its live holds."""
    both = sa.union_all(
        sa.select(accounts.c.account_id, accounts.c.held_nanos.label("nanos")),
        sa.select(holds.c.account_id, -holds.c.amount_nanos).where(holds.c.state == "held"),
    ).subquery()
    return _stream(connection, _unequal(both, "account_id"))


def unbalanced_entries(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Kind and request of entries whose legs do not sum to zero, and the sum."""
    legs = ledger.c.customer_nanos + ledger.c.revenue_nanos + ledger.c.loss_nanos + ledger.c.external_nanos
    return _stream(connection, sa.select(ledger.c.kind, ledger.c.request_id, legs.label("nanos")).where(legs != 0))


def repeated_entries(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Kind and request of what was booked more than once, and how often."""
    times = sa.func.count().label("times")
    query = sa.select(ledger.c.kind, ledger.c.request_id, times).group_by(ledger.c.kind, ledger.c.request_id)
    return _stream(connection, query.having(times > 1))


def holds_against_ledger(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Request, and how much its hold says was charged, and lost, above what its entries say."""
    both = sa.union_all(
        sa.select(holds.c.request_id, holds.c.charged_nanos.label("nanos"), holds.c.loss_nanos.label("lost")),
        sa.select(ledger.c.request_id, ledger.c.customer_nanos, ledger.c.loss_nanos).where(ledger.c.kind.in_(_BILLED)),
    ).subquery()
    return _stream(connection, _unequal(both, "request_id", ("nanos", "lost")))


def charged_voids(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Requests that were given back or still run, and charged all the same."""
    query = sa.select(holds.c.request_id, holds.c.state).where(
        holds.c.state.in_(("void", "held")), holds.c.charged_nanos != 0
    )
    return _stream(connection, query)


def claims_without_holds(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Account and request of claims whose request has no hold of that account."""
    of_account = sa.and_(holds.c.request_id == claims.c.request_id, holds.c.account_id == claims.c.account_id)
    query = sa.select(claims.c.account_id, claims.c.request_id).outerjoin(holds, of_account)
    return _stream(connection, query.where(holds.c.request_id.is_(None)).order_by(claims.c.request_id))


def counters_against_ledger(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Account, key, class and hour, and how much its counters are above what its charges say."""
    names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    keys = ("account_id", "key_id", "class_id", "hour_us")
    both = sa.union_all(
        sa.select(
            *(usage_hours.c[name] for name in (*keys, *names)), usage_hours.c.cost_nanos, usage_hours.c.loss_nanos
        ),
        sa.select(
            *(ledger.c[name] for name in keys),
            *(-ledger.c[name] for name in names),
            ledger.c.customer_nanos,
            ledger.c.loss_nanos,
        ).where(ledger.c.kind.in_(CHARGES)),
    ).subquery()
    sums = (*names, "cost_nanos", "loss_nanos")
    differ = sa.or_(*(sa.func.sum(both.c[name]) != 0 for name in sums))
    columns = [both.c[name] for name in keys]
    return _stream(connection, sa.select(*columns).group_by(*columns).having(differ).order_by(*columns))


def billed_requests(connection: sa.Connection) -> Iterator[sa.Row[Any]]:
    """Of every request: class, price version, all tokens that were billed, and what was booked for them."""
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "revenue_nanos")
    query = (
        sa.select(
            ledger.c.request_id,
            ledger.c.class_id,
            ledger.c.price_version,
            *(sa.cast(sa.func.sum(ledger.c[name]), sa.BigInteger).label(name) for name in names),
        )
        .where(ledger.c.kind.in_(_BILLED))
        .group_by(ledger.c.request_id, ledger.c.class_id, ledger.c.price_version)
    )
    return _stream(connection, query)


def all_prices(connection: sa.Connection) -> dict[tuple[int, str], Price]:
    rows = connection.execute(sa.select(prices).join(price_versions, prices.c.version == price_versions.c.version))
    return {(version, class_id): Price(*amounts) for version, class_id, *amounts in rows}


def _unequal(both: sa.Subquery, key: str, names: tuple[str, ...] = ("nanos",)) -> sa.Select[Any]:
    sums = [sa.func.sum(both.c[name]) for name in names]
    labelled = [total.label(name) for total, name in zip(sums, names, strict=True)]
    query = sa.select(both.c[key], *labelled).group_by(both.c[key]).having(sa.or_(*(total != 0 for total in sums)))
    return query.order_by(both.c[key])


def _stream(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
    """In portions: the ledger need not fit into memory."""
    return iter(connection.execution_options(yield_per=1000).execute(query))

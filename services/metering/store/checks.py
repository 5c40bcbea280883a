"""The queries of the audit. Each returns the rows that contradict another table, or themselves.

Two tables that must agree are summed together, one of them negated: any sum other than zero is a violation, and so is a
row that is missing on either side.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa

from services.metering.ledger.records import CHARGES, MILLION
from services.metering.store.tables import accounts, claims, holds, ledger, prices, usage_hours

_IS_CHARGE: Final = ledger.c.kind.in_(CHARGES)
_IS_BILLED: Final = ledger.c.kind.in_((*CHARGES, "loss"))
_IS_ITS_PRICE: Final = sa.and_(prices.c.version == ledger.c.price_version, prices.c.class_id == ledger.c.class_id)
# With an eighth of it an audit takes longer; with four times as much, the default, it is no faster.
AUDIT_PAGES_KIB: Final = 512
_TOKENS: Final = ("prompt_tokens", "cached_tokens", "completion_tokens")


def _unequal(both: sa.Subquery, key: str, names: tuple[str, ...] = ("nanos",)) -> sa.Select[Any]:
    sums = [sa.func.sum(both.c[name]) for name in names]
    labelled = [total.label(name) for total, name in zip(sums, names, strict=True)]
    query = sa.select(both.c[key], *labelled).group_by(both.c[key]).having(sa.or_(*(total != 0 for total in sums)))
    return query.order_by(both.c[key])


def _counters_against_ledger() -> sa.Select[Any]:
    keys, names = ("account_id", "key_id", "class_id", "hour_us"), ("requests", *_TOKENS)
    both = sa.union_all(
        sa.select(
            *(usage_hours.c[name] for name in (*keys, *names)), usage_hours.c.cost_nanos, usage_hours.c.loss_nanos
        ),
        sa.select(
            *(ledger.c[name] for name in keys),
            *(-ledger.c[name] for name in names),
            ledger.c.customer_nanos,
            ledger.c.loss_nanos,
        ).where(_IS_CHARGE),
    ).subquery()
    differ = sa.or_(*(sa.func.sum(both.c[name]) != 0 for name in (*names, "cost_nanos", "loss_nanos")))
    columns = [both.c[name] for name in keys]
    return sa.select(*columns).group_by(*columns).having(differ).order_by(*columns)


def _wrong_costs() -> sa.Select[Any]:
    """Compares bookings with token costs. Prices are split at a million: whole products would overflow the integers."""
    prompt_tokens, cached_tokens, completion_tokens, booked_nanos = (
        # PostgreSQL sums integers to decimals.
        sa.cast(sa.func.sum(ledger.c[name]), sa.BigInteger)
        for name in (*_TOKENS, "revenue_nanos")
    )
    parts = (
        (prompt_tokens - cached_tokens, prices.c.input_nanos_per_million),
        (cached_tokens, prices.c.cached_input_nanos_per_million),
        (completion_tokens, prices.c.output_nanos_per_million),
    )
    whole_nanos = sum((tokens * (price // MILLION) for tokens, price in parts), start=sa.literal(0, sa.BigInteger))
    millionths = sum((tokens * (price % MILLION) for tokens, price in parts), start=sa.literal(0, sa.BigInteger))
    cost_nanos = whole_nanos + (millionths + (MILLION - 1)) // MILLION
    price_columns = [column for column in prices.c if column is not prices.c.class_id]
    return (
        sa.select(ledger.c.request_id, booked_nanos, cost_nanos)
        .join(prices, _IS_ITS_PRICE)
        .where(_IS_BILLED)
        .group_by(ledger.c.request_id, ledger.c.class_id, *price_columns)
        .having(booked_nanos != cost_nanos)
        .order_by(ledger.c.request_id)
    )


# Account, balance and held, unless 0 <= held <= balance.
UNCOVERED_ACCOUNTS: Final = sa.select(accounts.c.account_id, accounts.c.balance_nanos, accounts.c.held_nanos).where(
    sa.or_(accounts.c.held_nanos < 0, accounts.c.held_nanos > accounts.c.balance_nanos)
)

# Account, and the excess of its balance over the sum of its entries.
BALANCES_AGAINST_LEDGER: Final = _unequal(
    sa.union_all(
        sa.select(accounts.c.account_id, accounts.c.balance_nanos.label("nanos")),
        sa.select(ledger.c.account_id, -ledger.c.customer_nanos),
    ).subquery(),
    "account_id",
)

# Account, and the excess of its held credit over the sum of its live holds.
HELD_AGAINST_HOLDS: Final = _unequal(
    sa.union_all(
        sa.select(accounts.c.account_id, accounts.c.held_nanos.label("nanos")),
        sa.select(holds.c.account_id, -holds.c.amount_nanos).where(holds.c.state == "held"),
    ).subquery(),
    "account_id",
)

_LEGS: Final = ledger.c.customer_nanos + ledger.c.revenue_nanos + ledger.c.loss_nanos + ledger.c.external_nanos
# Kind and request of entries whose legs do not sum to zero, and the sum.
UNBALANCED_ENTRIES: Final = sa.select(ledger.c.kind, ledger.c.request_id, _LEGS.label("nanos")).where(_LEGS != 0)

# Kind and request of repeated bookings, and how often.
REPEATED_ENTRIES: Final = (
    sa.select(ledger.c.kind, ledger.c.request_id, sa.func.count())
    .group_by(ledger.c.kind, ledger.c.request_id)
    .having(sa.func.count() > 1)
)

# Request, and how many requests its charges were counted as, unless one.
REPEATED_COUNTS: Final = (
    sa.select(ledger.c.request_id, sa.func.sum(ledger.c.requests))
    .where(_IS_CHARGE)
    .group_by(ledger.c.request_id)
    .having(sa.func.sum(ledger.c.requests) != 1)
)

# Request, and the excess of its hold's charge, and loss, over its entries'.
HOLDS_AGAINST_LEDGER: Final = _unequal(
    sa.union_all(
        sa.select(holds.c.request_id, holds.c.charged_nanos.label("nanos"), holds.c.loss_nanos.label("lost")),
        sa.select(ledger.c.request_id, ledger.c.customer_nanos, ledger.c.loss_nanos).where(_IS_BILLED),
    ).subquery(),
    "request_id",
    ("nanos", "lost"),
)

# Kind and request of entries whose terms differ from those of the request's hold.
ENTRIES_ON_OTHER_TERMS: Final = (
    sa.select(ledger.c.kind, ledger.c.request_id)
    .join(holds, holds.c.request_id == ledger.c.request_id)
    .where(
        _IS_BILLED,
        sa.or_(*(ledger.c[name] != holds.c[name] for name in ("account_id", "key_id", "class_id", "price_version"))),
    )
    .order_by(ledger.c.request_id)
)

# Requests that are voided or still run, and yet charged.
CHARGED_VOIDS: Final = sa.select(holds.c.request_id, holds.c.state).where(
    holds.c.state.in_(("void", "held")), holds.c.charged_nanos != 0
)

# Settled requests without any charge entry, not even of zero.
UNBOOKED_SETTLEMENTS: Final = (
    sa.select(holds.c.request_id)
    .where(
        holds.c.state == "settled",
        ~sa.exists().where(ledger.c.request_id == holds.c.request_id, _IS_CHARGE),
    )
    .order_by(holds.c.request_id)
)

# Account and request of claims whose request has no hold of that account.
CLAIMS_WITHOUT_HOLDS: Final = (
    sa.select(claims.c.account_id, claims.c.request_id)
    .outerjoin(
        holds, sa.and_(holds.c.request_id == claims.c.request_id, holds.c.account_id == claims.c.account_id)
    )
    .where(holds.c.request_id.is_(None))
    .order_by(claims.c.request_id)
)  # fmt: skip

# Account, key, class and hour whose counters differ from its charges.
COUNTERS_AGAINST_LEDGER: Final = _counters_against_ledger()

# Request, and how much more it was charged than it cost.
OVERCHARGED_REQUESTS: Final = (
    sa.select(ledger.c.request_id, sa.func.sum(ledger.c.loss_nanos))
    .where(_IS_BILLED)
    .group_by(ledger.c.request_id)
    .having(sa.func.sum(ledger.c.loss_nanos) > 0)
    .order_by(ledger.c.request_id)
)

# Kind, request, class and price version of entries by a price that does not exist.
ENTRIES_WITHOUT_PRICE: Final = (
    sa.select(ledger.c.kind, ledger.c.request_id, ledger.c.class_id, ledger.c.price_version)
    .outerjoin(prices, _IS_ITS_PRICE)
    .where(_IS_BILLED, prices.c.version.is_(None))
    .order_by(ledger.c.request_id)
)

# Request, its booked amount, and the cost of its tokens by the price of its version, where they differ.
WRONG_COSTS: Final = _wrong_costs()


def expect_full_tables(connection: sa.Connection) -> None:
    """Disables nested loops in PostgreSQL, whose statistics may predate most rows: with them an audit of 20,000 chats
    took 10 s, and less than a second without."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL enable_nestloop = off")


def stream(connection: sa.Connection, check: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
    """Runs a check and streams its rows: the ledger need not fit into memory."""
    return iter(connection.execution_options(yield_per=1000).execute(check))


@contextmanager
def few_pages(connection: sa.Connection) -> Iterator[None]:
    """Shrinks SQLite's page cache for an audit, which reads all pages, is no faster with cached ones, and would leave
    the cache full of pages that are not needed for minutes."""
    if connection.dialect.name != "sqlite":
        yield
        return
    usual = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size = -{AUDIT_PAGES_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA shrink_memory")
        connection.exec_driver_sql(f"PRAGMA cache_size = {usual}")

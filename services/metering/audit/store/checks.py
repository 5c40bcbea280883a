"""The queries of the audit. Each returns the rows that contradict another table, or themselves.

Two tables that must agree are summed together, one of them negated: any sum other than zero is a violation, and so is a
row that is missing on either side. Every check is a function of the rows that it compares: all, or those of an account;
of both, those since the last closed month. What was before is proved by its closing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, NotRequired, TypedDict

import sqlalchemy as sa

from services.metering.credit.records import BILLED, CHARGES
from services.metering.credit.store.closings import OpenPeriod, read_open_period, read_retention
from services.metering.credit.store.tables import (
    IS_LIVE,
    account_closings,
    accounts,
    claims,
    holds,
    is_its_price,
    ledger,
    owed_changes,
    prices,
    spends,
    usage_hours,
)
from services.metering.store.schema import AnyQuery, AnyRow
from services.rules.cost import MILLION
from services.rules.usage import COLUMNS

# With an eighth of it an audit takes longer; with four times as much, the default, it is no faster.
AUDIT_PAGES_KIB: Final = 512
# Of PostgreSQL, for each step of a query.
AUDIT_WORK_MEM: Final = "32MB"
# What a request costs follows from them.
_PRICED: Final = ("prompt_tokens", "cached_tokens", "completion_tokens")


class BookRows(NamedTuple):
    """The rows that an audit reads. Prices belong to no account."""

    accounts: sa.FromClause
    # The accounts at the end of the last closed month.
    openings: sa.FromClause
    holds: sa.FromClause
    live_holds: sa.FromClause
    claims: sa.FromClause
    ledger: sa.FromClause
    # The entries of the requests: also those from before, where a request has later ones.
    booked: sa.FromClause
    usage_hours: sa.FromClause
    # Since the beginning.
    all_usage_hours: sa.FromClause
    spends: sa.FromClause
    # Since the beginning.
    owed_changes: sa.FromClause


# The period that is audited, as `AuditScope.parameters` has it.
OPEN_US: Final = sa.bindparam("open_us", type_=sa.BigInteger)
IS_OPEN: Final = sa.and_(
    ledger.c.recorded_at_us >= OPEN_US, ledger.c.entry_id > sa.bindparam("after_id", type_=sa.BigInteger)
)
PRUNED_IDS: Final = sa.bindparam("pruned_ids", expanding=True, type_=sa.Text)
_CROSSING_IDS: Final = sa.bindparam("crossing_ids", expanding=True, type_=sa.Text)
WAS_CHARGED_BEFORE: Final = sa.and_(
    ledger.c.kind == sa.literal_column("'charge'"),
    ledger.c.request_id.in_(_CROSSING_IDS),
    ledger.c.recorded_at_us < OPEN_US,
)
IS_UNRESOLVED_BEFORE: Final = sa.or_(IS_LIVE, holds.c.resolved_at_us >= OPEN_US)
IS_AUDITED: Final = sa.and_(IS_UNRESOLVED_BEFORE, holds.c.request_id.not_in(PRUNED_IDS))
_IS_OPENING: Final = account_closings.c.month_us == sa.bindparam("closed_month_us", type_=sa.BigInteger)
_IS_OPEN_HOUR: Final = usage_hours.c.hour_us >= OPEN_US


_OPEN_ENTRIES: Final = sa.select(ledger).where(IS_OPEN)
_BOOKED: Final = sa.union_all(
    _OPEN_ENTRIES.where(ledger.c.request_id.not_in(PRUNED_IDS)), sa.select(ledger).where(WAS_CHARGED_BEFORE)
)
ALL_ROWS: Final = BookRows(
    accounts,
    sa.select(account_closings).where(_IS_OPENING).subquery(),
    sa.select(holds).where(IS_AUDITED).subquery(),
    sa.select(holds).where(IS_LIVE).subquery(),
    claims,
    _OPEN_ENTRIES.subquery(),
    _BOOKED.subquery(),
    sa.select(usage_hours).where(_IS_OPEN_HOUR).subquery(),
    usage_hours,
    spends,
    owed_changes,
)


def rows_of_account(account_id: str) -> BookRows:
    """Returns the rows of one account, each found by an index. No index has the holds of an account: they are those of
    its ledger entries and those that live."""
    its_accounts, its_openings, its_claims, its_ledger, its_hours, its_spends, its_owed_changes = (
        sa.select(table).where(table.c.account_id == account_id)
        for table in (accounts, account_closings, claims, ledger, usage_hours, spends, owed_changes)
    )
    its_entries = its_ledger.where(IS_OPEN)
    is_billed = sa.and_(ledger.c.account_id == account_id, ledger.c.kind.in_(BILLED), IS_OPEN)
    is_crossing = sa.and_(holds.c.request_id.in_(_CROSSING_IDS), holds.c.account_id == account_id)
    is_booked = sa.or_(holds.c.request_id.in_(sa.select(ledger.c.request_id).where(is_billed)), is_crossing)
    booked = sa.select(holds).where(is_booked, holds.c.request_id.not_in(PRUNED_IDS))
    live = sa.select(holds).where(IS_LIVE, holds.c.account_id == account_id)
    has_entry = sa.exists().where(is_billed, ledger.c.request_id == holds.c.request_id)
    known = its_entries.where(ledger.c.request_id.not_in(PRUNED_IDS))
    before = its_ledger.where(WAS_CHARGED_BEFORE)
    return BookRows(
        its_accounts.subquery(),
        its_openings.where(_IS_OPENING).subquery(),
        sa.union_all(booked, live.where(~has_entry)).subquery(),
        live.subquery(),
        its_claims.subquery(),
        its_entries.subquery(),
        sa.union_all(known, before).subquery(),
        its_hours.where(_IS_OPEN_HOUR).subquery(),
        its_hours.subquery(),
        its_spends.subquery(),
        its_owed_changes.subquery(),
    )


# Builds the query for the rows that contradict others.
Check = Callable[[BookRows], AnyQuery]


class CheckParameters(TypedDict):
    """The values of the checks' parameters."""

    open_us: int
    after_id: int
    closed_month_us: int
    # The requests that were charged before the period and resolved in it; and those of them whose charges were pruned.
    crossing_ids: list[str]
    pruned_ids: list[str]
    summed_us: int
    reported_to_id: int
    # Of the checks of suspects alone.
    suspect_ids: NotRequired[list[str]]


class AuditScope(NamedTuple):
    """The period of an audit: everything since the last closed month."""

    period: OpenPeriod
    parameters: CheckParameters


def read_scope(connection: sa.Connection) -> AuditScope:
    """Finds the period, and the requests that were charged before it and resolved in it: their earlier charges are
    audited once more, unless they were pruned."""
    period, retention = read_open_period(connection), read_retention(connection)
    crossing: list[tuple[str, int]] = []
    if period.closing is not None:
        is_crossing = (holds.c.resolved_at_us >= period.start_us, holds.c.counted_hour_us < period.start_us)
        query = sa.select(holds.c.request_id, holds.c.counted_hour_us).where(*is_crossing)
        crossing = [(request_id, hour_us) for request_id, hour_us in connection.execute(query)]
    pruned_before_us = retention.ledger_pruned_before_us
    return AuditScope(
        period,
        {
            "open_us": period.start_us,
            "after_id": period.after_id,
            "closed_month_us": period.closed_month_us,
            "crossing_ids": [request_id for request_id, hour_us in crossing if hour_us >= pruned_before_us],
            "pruned_ids": [request_id for request_id, hour_us in crossing if hour_us < pruned_before_us],
            "summed_us": retention.usage_marked_before_us,
            "reported_to_id": retention.reported_to_id,
        },
    )


def unequal_sums(both: sa.Subquery, key: str, names: tuple[str, ...] = ("nanos",)) -> AnyQuery:
    """Returns the key and the sums of its rows, unless they are zero."""
    sums = [sa.func.sum(both.c[name]) for name in names]
    labelled = [total.label(name) for total, name in zip(sums, names, strict=True)]
    query = sa.select(both.c[key], *labelled).group_by(both.c[key]).having(sa.or_(*(total != 0 for total in sums)))
    return query.order_by(both.c[key])


def unindexed_kind(entries: sa.FromClause) -> sa.ColumnElement[str]:
    """Returns the kind of an entry. Compared with this, SQLite reads the entries of the period by their ids; with the
    column itself, it reads all that ever were of that kind, by the index of kind and request."""
    return sa.func.coalesce(entries.c.kind, "")


def _is_charge(entries: sa.FromClause) -> sa.ColumnElement[bool]:
    return unindexed_kind(entries).in_(CHARGES)


def _is_billed(entries: sa.FromClause) -> sa.ColumnElement[bool]:
    return unindexed_kind(entries).in_(BILLED)


def uncovered_accounts(rows: BookRows) -> AnyQuery:
    """Returns account, balance and held, unless 0 <= held <= balance."""
    found = rows.accounts.c
    return sa.select(found.account_id, found.balance_nanos, found.held_nanos).where(
        sa.or_(found.held_nanos < 0, found.held_nanos > found.balance_nanos)
    )


def balances_against_ledger(rows: BookRows) -> AnyQuery:
    """Returns account, and the excess of its balance over that of the last closing and the sum of its entries since."""
    both = sa.union_all(
        sa.select(rows.accounts.c.account_id, rows.accounts.c.balance_nanos.label("nanos")),
        sa.select(rows.openings.c.account_id, -rows.openings.c.balance_nanos),
        sa.select(rows.ledger.c.account_id, -rows.ledger.c.customer_nanos),
    )
    return unequal_sums(both.subquery(), "account_id")


def held_against_holds(rows: BookRows) -> AnyQuery:
    """Returns account, and the excess of its held credit over the sum of its live holds."""
    both = sa.union_all(
        sa.select(rows.accounts.c.account_id, rows.accounts.c.held_nanos.label("nanos")),
        sa.select(rows.live_holds.c.account_id, -rows.live_holds.c.amount_nanos),
    )
    return unequal_sums(both.subquery(), "account_id")


def unbalanced_entries(rows: BookRows) -> AnyQuery:
    """Returns kind and request of entries whose legs do not sum to zero, and the sum."""
    entry = rows.ledger.c
    legs = entry.customer_nanos + entry.revenue_nanos + entry.loss_nanos + entry.external_nanos
    return sa.select(entry.kind, entry.request_id, legs.label("nanos")).where(legs != 0)


def repeated_entries(rows: BookRows) -> AnyQuery:
    """Returns kind and request of repeated bookings, and how often."""
    entry = rows.booked.c
    return (
        sa.select(entry.kind, entry.request_id, sa.func.count())
        .group_by(entry.kind, entry.request_id)
        .having(sa.func.count() > 1)
    )


def repeated_counts(rows: BookRows) -> AnyQuery:
    """Returns request, and how many requests its charges were counted as, unless one."""
    entry = rows.booked.c
    return (
        sa.select(entry.request_id, sa.func.sum(entry.requests))
        .where(_is_charge(rows.booked))
        .group_by(entry.request_id)
        .having(sa.func.sum(entry.requests) != 1)
    )


def holds_against_ledger(rows: BookRows) -> AnyQuery:
    """Returns request, and the excess of its hold's charge, and loss, over its entries'."""
    hold, entry = rows.holds.c, rows.booked.c
    both = sa.union_all(
        sa.select(hold.request_id, hold.charged_nanos.label("nanos"), hold.loss_nanos.label("lost")),
        sa.select(entry.request_id, entry.customer_nanos, entry.loss_nanos).where(_is_billed(rows.booked)),
    )
    return unequal_sums(both.subquery(), "request_id", ("nanos", "lost"))


def entries_on_other_terms(rows: BookRows) -> AnyQuery:
    """Returns kind and request of entries whose terms differ from those of the request's hold."""
    entry, terms = rows.booked.c, ("account_id", "key_id", "class_id", "price_version")
    return (
        sa.select(entry.kind, entry.request_id)
        .join(holds, holds.c.request_id == entry.request_id)
        .where(_is_billed(rows.booked), sa.or_(*(entry[name] != holds.c[name] for name in terms)))
        .order_by(entry.request_id)
    )


def charged_voids(rows: BookRows) -> AnyQuery:
    """Returns requests that are voided or still run, and yet charged."""
    hold = rows.holds.c
    return sa.select(hold.request_id, hold.state).where(hold.state.in_(("void", "held")), hold.charged_nanos != 0)


def unbooked_settlements(rows: BookRows) -> AnyQuery:
    """Returns settled requests without any charge entry, not even of zero."""
    hold = rows.holds.c
    # Not a range of ids: SQLite is to find each by its request.
    is_recent = ledger.c.recorded_at_us >= OPEN_US
    is_booked = sa.exists().where(ledger.c.request_id == hold.request_id, ledger.c.kind.in_(CHARGES), is_recent)
    is_of_period = sa.or_(hold.counted_hour_us.is_(None), hold.counted_hour_us >= OPEN_US)
    query = sa.select(hold.request_id).where(hold.state == "settled", is_of_period, ~is_booked)
    return query.order_by(hold.request_id)


def claims_without_holds(rows: BookRows) -> AnyQuery:
    """Returns account and request of claims whose request has no hold of that account."""
    claim = rows.claims.c
    is_its_hold = sa.and_(holds.c.request_id == claim.request_id, holds.c.account_id == claim.account_id)
    return (
        sa.select(claim.account_id, claim.request_id)
        .outerjoin(holds, is_its_hold)
        .where(holds.c.request_id.is_(None))
        .order_by(claim.request_id)
    )


def counters_against_ledger(rows: BookRows) -> AnyQuery:
    """Returns account, key, class and hour whose counters differ from its charges."""
    counter, entry = rows.usage_hours.c, rows.ledger.c
    keys, names = ("account_id", "key_id", "class_id", "hour_us"), ("requests", *COLUMNS)
    both = sa.union_all(
        sa.select(*(counter[name] for name in (*keys, *names)), counter.cost_nanos, counter.loss_nanos),
        sa.select(
            *(entry[name] for name in keys), *(-entry[name] for name in names), entry.customer_nanos, entry.loss_nanos
        ).where(_is_charge(rows.ledger), entry.hour_us >= OPEN_US),
    ).subquery()
    differ = sa.or_(*(sa.func.sum(both.c[name]) != 0 for name in (*names, "cost_nanos", "loss_nanos")))
    columns = [both.c[name] for name in keys]
    return sa.select(*columns).group_by(*columns).having(differ).order_by(*columns)


def overcharged_requests(rows: BookRows) -> AnyQuery:
    """Returns request, and how much more it was charged than it cost."""
    entry = rows.booked.c
    return (
        sa.select(entry.request_id, sa.func.sum(entry.loss_nanos))
        .where(_is_billed(rows.booked))
        .group_by(entry.request_id)
        .having(sa.func.sum(entry.loss_nanos) > 0)
        .order_by(entry.request_id)
    )


def entries_without_price(rows: BookRows) -> AnyQuery:
    """Returns kind, request, class and price version of entries by a price that does not exist."""
    entry = rows.booked.c
    return (
        sa.select(entry.kind, entry.request_id, entry.class_id, entry.price_version)
        .outerjoin(prices, is_its_price(rows.booked))
        .where(_is_billed(rows.booked), prices.c.version.is_(None))
        .order_by(entry.request_id)
    )


def cost_expression(
    prompt_tokens: sa.ColumnElement[int], cached_tokens: sa.ColumnElement[int], completion_tokens: sa.ColumnElement[int]
) -> sa.ColumnElement[int]:
    """Builds the cost of tokens. Prices are split at a million: whole products would overflow the integers."""
    parts = (
        (prompt_tokens - cached_tokens, prices.c.input_nanos_per_million),
        (cached_tokens, prices.c.cached_input_nanos_per_million),
        (completion_tokens, prices.c.output_nanos_per_million),
    )
    whole_nanos = sum((tokens * (price // MILLION) for tokens, price in parts), start=sa.literal(0, sa.BigInteger))
    millionths = sum((tokens * (price % MILLION) for tokens, price in parts), start=sa.literal(0, sa.BigInteger))
    return whole_nanos + (millionths + (MILLION - 1)) // MILLION


def wrong_costs(rows: BookRows) -> AnyQuery:
    """Returns request, its booked amount, and the cost of its tokens by the price of its version, where they differ."""
    entry = rows.booked.c
    prompt_tokens, cached_tokens, completion_tokens, booked_nanos = (
        # PostgreSQL sums integers to decimals.
        sa.cast(sa.func.sum(entry[name]), sa.BigInteger)
        for name in (*_PRICED, "revenue_nanos")
    )
    cost_nanos = cost_expression(prompt_tokens, cached_tokens, completion_tokens)
    price_columns = [column for column in prices.c if column is not prices.c.class_id]
    return (
        sa.select(entry.request_id, booked_nanos, cost_nanos)
        .join(prices, is_its_price(rows.booked))
        .where(_is_billed(rows.booked))
        .group_by(entry.request_id, entry.class_id, *price_columns)
        .having(booked_nanos != cost_nanos)
        .order_by(entry.request_id)
    )


def spends_against_usage(rows: BookRows) -> AnyQuery:
    """Returns account and key whose counters of spending differ from usage, or from the live holds."""
    spend, usage, live = rows.spends.c, rows.all_usage_hours.c, rows.live_holds.c

    def total(amount: sa.ColumnElement[int], *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
        return sa.select(sa.func.coalesce(sa.func.sum(amount), 0)).where(*conditions).scalar_subquery()

    def is_its_own(rows_of: sa.FromClause) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
        """Returns what counts for a spend: of a key, also what keys spend that have replaced it."""
        sharing, counted = rows.spends.alias().c, rows_of.c
        is_replacement = sa.exists().where(
            sharing.account_id == counted.account_id,
            sharing.key_id == counted.key_id,
            sharing.shared_spend_id == spend.spend_id,
        )
        of_key = sa.or_(counted.key_id == spend.key_id, sa.and_(is_shared, is_replacement))
        of_subject = sa.or_(spend.key_id == "", sa.and_(spend.shared_spend_id == "", of_key))
        return counted.account_id == spend.account_id, of_subject

    # Few are: the others are compared without looking for replacements.
    shared = rows.spends.alias().c.shared_spend_id
    is_shared = spend.spend_id.in_(sa.select(shared).where(shared != ""))

    is_spent, is_held = is_its_own(rows.all_usage_hours), is_its_own(rows.live_holds)
    differ = sa.or_(
        sa.and_(
            # The hours of an earlier day are summed up.
            spend.day_us >= sa.bindparam("summed_us", type_=sa.BigInteger),
            spend.day_spent_nanos != total(usage.cost_nanos, *is_spent, usage.hour_us >= spend.day_us),
        ),
        spend.month_spent_nanos != total(usage.cost_nanos, *is_spent, usage.hour_us >= spend.month_us),
        spend.total_spent_nanos != total(usage.cost_nanos, *is_spent),
        spend.held_nanos != total(live.amount_nanos, *is_held),
    )
    return sa.select(spend.account_id, spend.key_id).where(differ).order_by(spend.account_id, spend.key_id)


def expect_full_tables(connection: sa.Connection) -> None:
    """Disables nested loops in PostgreSQL, whose statistics may predate most rows: with them an audit of 20,000 chats
    took 10 s, and less than a second without. With its default of memory it would write what it joins to disk."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL enable_nestloop = off")
        connection.exec_driver_sql(f"SET LOCAL work_mem = '{AUDIT_WORK_MEM}'")


def stream(connection: sa.Connection, check: sa.Executable, parameters: CheckParameters) -> Iterator[AnyRow]:
    """Runs a check and streams its rows: the ledger need not fit into memory."""
    with connection.execution_options(yield_per=1000).execute(check, parameters) as rows:
        yield from rows


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

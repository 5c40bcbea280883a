"""Finds the requests that an audit has to look at closely, among all that were charged as they should be.

Nearly every request has one hold, which is settled, and one charge that is right in itself and agrees with the hold.
One pass along the holds verifies that, where each check would read, sort and group all entries again. What is left are
suspects: requests that were swept, charged late, or at a loss, and violations. The checks decide on them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa

from services.metering.audit.store.checks import (
    ALL_ROWS,
    IS_AUDITED,
    IS_OPEN,
    IS_UNRESOLVED_BEFORE,
    OPEN_US,
    PRUNED_IDS,
    WAS_CHARGED_BEFORE,
    AuditScope,
    BookRows,
    CheckParameters,
    cost_expression,
    stream,
)
from services.metering.audit.store.entry_sums import LISTED_MOST, EntryScreen
from services.metering.credit.records import BILLED
from services.metering.credit.store.tables import holds, is_its_price, ledger, prices
from services.metering.store.schema import AnyQuery

# With more of them, all requests are suspects.
SUSPECTS_MOST: Final = LISTED_MOST
# Below either database's limit of parameters per statement.
SUSPECTS_AT_ONCE: Final = 5_000

_TERMS: Final = ("account_id", "key_id", "class_id", "price_version")
_CHARGE: Final[sa.ColumnElement[str]] = sa.literal_column("'charge'")
_SUSPECT_IDS: Final = sa.bindparam("suspect_ids", expanding=True, type_=sa.Text)
# A request that was charged before the period and resolved again in it is a suspect anyway, or pruned.
_IS_OF_PERIOD: Final = sa.and_(IS_UNRESOLVED_BEFORE, sa.func.coalesce(holds.c.counted_hour_us, OPEN_US) >= OPEN_US)


def _is_plain() -> sa.ColumnElement[bool]:
    """Returns whether a hold and its charge, or a hold without one, are as they should be. Each part is what a check
    demands of a request with one charge. Where anything is NULL, they are not."""
    hold, entry = holds.c, ledger.c
    is_charged_right = sa.and_(
        hold.state == "settled",
        entry.requests == 1,
        hold.charged_nanos + entry.customer_nanos == 0,
        hold.loss_nanos + entry.loss_nanos == 0,
        entry.loss_nanos <= 0,
        *(entry[name] == hold[name] for name in _TERMS),
        entry.revenue_nanos == cost_expression(entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens),
    )
    is_free = sa.and_(
        hold.state.in_(("held", "void")), entry.entry_id.is_(None), hold.charged_nanos == 0, hold.loss_nanos == 0
    )
    return sa.or_(is_charged_right, is_free)


def _suspicious_holds() -> AnyQuery:
    """Returns request, whether it is settled, and whether it has a charge."""
    is_its_charge = sa.and_(
        ledger.c.kind == _CHARGE, ledger.c.request_id == holds.c.request_id, ledger.c.recorded_at_us >= OPEN_US
    )
    return (
        sa.select(
            holds.c.request_id,
            (holds.c.state == "settled").label("is_settled"),
            ledger.c.entry_id.is_not(None).label("is_charged"),
        )
        .select_from(holds)
        .outerjoin(ledger, is_its_charge)
        .outerjoin(prices, is_its_price(ledger))
        .where(_IS_OF_PERIOD, sa.case((_is_plain(), 0), else_=1) == 1)
    )


_SUSPICIOUS_HOLDS: Final = _suspicious_holds()
_SETTLED: Final = sa.select(sa.func.count()).where(_IS_OF_PERIOD, holds.c.state == "settled")


def find_suspects(connection: sa.Connection, scope: AuditScope, entries: EntryScreen) -> list[str] | None:
    """Returns the requests that the checks have to look at; None: all of them."""
    parameters = scope.parameters
    suspects = entries.otherwise_billed.union(parameters["crossing_ids"], parameters["pruned_ids"])
    if len(suspects) > SUSPECTS_MOST:
        return None
    settled: set[str] = set()
    charges = 0
    for suspect in stream(connection, _SUSPICIOUS_HOLDS, parameters):
        suspects.add(suspect.request_id)
        charges += bool(suspect.is_charged)
        if suspect.is_settled:
            settled.add(suspect.request_id)
        if len(suspects) > SUSPECTS_MOST:
            return None
    # A settled hold that is no suspect has at least one charge. There are more than those and the suspects' only if one
    # is repeated, or belongs to no hold.
    plain = connection.execute(_SETTLED, parameters).scalar_one() - len(settled)
    return sorted(suspects) if entries.charges == plain + charges else None


@contextmanager
def forced_index_lookups(connection: sa.Connection) -> Iterator[None]:
    """Has PostgreSQL plan with indexes meanwhile, so that each of some requests is found by one, whatever it takes the
    size of the tables for."""
    if connection.dialect.name != "postgresql":
        yield
        return
    # The connection's own cursors are the server's once rows were streamed, and take queries alone.
    cursor = connection.connection.cursor()
    set_both = "SELECT set_config('enable_nestloop', %s, true), set_config('enable_seqscan', %s, true)"
    cursor.execute(set_both, ("on", "off"))
    yield
    # As `expect_full_tables` has them.
    cursor.execute(set_both, ("off", "on"))


def _suspect_rows() -> BookRows:
    its_own = ledger.c.request_id.in_(_SUSPECT_IDS)
    # Not a range of ids: each is to be found by its request.
    is_open = (ledger.c.recorded_at_us >= OPEN_US, ledger.c.kind.in_(BILLED), its_own)
    known = sa.select(ledger).where(*is_open, ledger.c.request_id.not_in(PRUNED_IDS))
    return ALL_ROWS._replace(
        holds=sa.select(holds).where(IS_AUDITED, holds.c.request_id.in_(_SUSPECT_IDS)).subquery(),
        booked=sa.union_all(known, sa.select(ledger).where(WAS_CHARGED_BEFORE, its_own)).subquery(),
    )


SUSPECT_ROWS: Final = _suspect_rows()
# Entries of no request.
CREDIT_ROWS: Final = ALL_ROWS._replace(booked=sa.select(ledger).where(IS_OPEN, ledger.c.kind.not_in(BILLED)).subquery())


def portions(suspects: Sequence[str], scope: AuditScope) -> Iterator[CheckParameters]:
    """Yields the parameters of the checks, for some suspects at a time."""
    for start in range(0, len(suspects), SUSPECTS_AT_ONCE):
        yield {**scope.parameters, "suspect_ids": list(suspects[start : start + SUSPECTS_AT_ONCE])}

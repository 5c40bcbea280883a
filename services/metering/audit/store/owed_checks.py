"""Checks of what accounts owe for payments that were returned."""

import sqlalchemy as sa

from services.metering.audit.store.checks import BookRows, unequal_sums
from services.metering.credit.store.tables import ledger, pruned_credits
from services.metering.store.schema import AnyQuery


def owed_against_changes(rows: BookRows) -> AnyQuery:
    """Returns account, and the excess of what it owes over what was found owed and not repaid."""
    both = sa.union_all(
        sa.select(rows.accounts.c.account_id, rows.accounts.c.owed_nanos.label("nanos")),
        sa.select(rows.owed_changes.c.account_id, -rows.owed_changes.c.owed_nanos),
    )
    return unequal_sums(both.subquery(), "account_id")


def owed_against_ledger(rows: BookRows) -> AnyQuery:
    """Returns the id of adjustments whose loss is not what they add to what is owed, and the excess of the latter."""
    change = rows.owed_changes.c

    def lost(entries: sa.Table) -> sa.ScalarSelect[int]:
        # Found by the index, one by one: an audit would otherwise join all entries.
        is_its_entry = (
            entries.c.kind == sa.literal_column("'adjustment'"),
            entries.c.request_id == change.request_id,
            entries.c.account_id == change.account_id,
        )
        return (
            sa.select(sa.cast(sa.func.sum(entries.c.loss_nanos), sa.BigInteger)).where(*is_its_entry).scalar_subquery()
        )

    # While they are pruned, entries are in both.
    nanos = change.owed_nanos + sa.func.coalesce(lost(ledger), lost(pruned_credits), 0)
    return sa.select(change.request_id, nanos.label("nanos")).where(nanos != 0).order_by(change.request_id)


def owed_of_free_credit(rows: BookRows) -> AnyQuery:
    """Returns account, what it owes, and the credit that could have paid it: what is owed is taken at once."""
    found = rows.accounts.c
    free_nanos = found.balance_nanos - found.held_nanos
    return sa.select(found.account_id, found.owed_nanos, free_nanos).where(found.owed_nanos > 0, free_nanos > 0)

"""Creates closings of months and the state of retention; PostgreSQL's ledger becomes partitioned by month.

The table of today becomes the first partition, with all of its rows and indexes: nothing is copied, and nothing is read
while writes wait: a check that was validated before proves that all rows are within its bounds. What a unique index
cannot guard across partitions (one entry of each kind for a request) is guarded within each, and by the hold's state.
SQLite's ledger stays one table, whose rows may be deleted once their month was marked as pruned.
"""

import re
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from services.metering.store.retention.partitions import (
    FIRST_PARTITION,
    RARE_BY_ACCOUNT,
    create_partition,
    guard_partition,
    months_from,
)

revision = "0008"
down_revision = "0007"

MONTHS_AHEAD = 3
# The check that proves the bounds of the first partition, until it is one.
BOUND_CHECK = "ledger_is_of_first_partition"
MONTH_SUMS = (
    "entries", "granted_nanos", "adjusted_nanos", "charged_nanos", "loss_nanos",
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens",
)  # fmt: skip
LIFETIME_SUMS = ("balance_nanos", "total_entries", "total_credited_nanos", "total_charged_nanos")
TOTALS = (
    "ends_us", "entries", "customer_nanos", "revenue_nanos", "loss_nanos", "external_nanos",
    "accounts", "balance_nanos", "closed_at_us",
)  # fmt: skip
PRUNED_CREDIT = ("customer_nanos", "recorded_at_us", "revenue_nanos", "loss_nanos", "external_nanos")
HASHES = ("entries_hash", "accounts_hash", "previous_hash", "closing_hash")
# A month's accounts are written in portions; the month's own row, written last, makes them final.
IS_CLOSED = "EXISTS (SELECT 1 FROM closings WHERE closings.month_us = OLD.month_us)"


def upgrade() -> None:
    op.create_table(
        "closings",
        sa.Column("month_us", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in TOTALS),
        *(sa.Column(name, sa.Text, nullable=False) for name in HASHES),
    )
    op.create_table(
        "account_closings",
        sa.Column("month_us", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account_id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in (*MONTH_SUMS, *LIFETIME_SUMS)),
    )
    op.create_table(
        "pruned_credits",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in PRUNED_CREDIT),
    )
    retention = op.create_table(
        "retention",
        sa.Column("retention_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("lease_holder", sa.Text, nullable=False),
        sa.Column("lease_until_us", sa.BigInteger, nullable=False),
        sa.Column("ledger_pruned_before_us", sa.BigInteger, nullable=False),
        sa.Column("usage_marked_before_us", sa.BigInteger, nullable=False),
        sa.Column("usage_summed_before_us", sa.BigInteger, nullable=False),
        sa.CheckConstraint("retention_id = 1", name="retention_is_one_row"),
    )
    none_yet = dict.fromkeys(
        ("lease_until_us", "ledger_pruned_before_us", "usage_marked_before_us", "usage_summed_before_us"), 0
    )
    op.bulk_insert(retention, [{"retention_id": 1, "lease_holder": "", **none_yet}])
    if op.get_context().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()
        _partition()


def _guard_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER closings_refuses_{change.lower()} BEFORE {change} ON closings"
            " BEGIN SELECT RAISE(ABORT, 'closings is append-only'); END"
        )
        op.execute(
            f"CREATE TRIGGER account_closings_refuses_{change.lower()} BEFORE {change} ON account_closings"
            f" WHEN {IS_CLOSED} BEGIN SELECT RAISE(ABORT, 'account_closings is append-only'); END"
        )
    op.execute("DROP TRIGGER ledger_refuses_delete")
    op.execute(
        "CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger"
        " WHEN OLD.recorded_at_us >= (SELECT ledger_pruned_before_us FROM retention)"
        " BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END"
    )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE TRIGGER closings_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON closings"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute(
        "CREATE FUNCTION refuse_change_of_closed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS"
        f" $$ BEGIN IF {IS_CLOSED} THEN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END IF;"
        " IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER account_closings_refuses_change BEFORE UPDATE OR DELETE ON account_closings"
        " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_closed()"
    )


def prepare_concurrently(connection: Any) -> None:
    """Has PostgreSQL verify, while writes go on, that all entries were recorded before the end of next month: also if
    this month ends before the migration runs, no entry is refused."""
    is_table = "SELECT relkind = 'r' FROM pg_class WHERE oid = to_regclass('ledger')"
    this_month, next_month = months_from(datetime.now(UTC), 2)
    if not connection.exec_driver_sql(is_table).scalar() or (_proved_bound_us(connection) or 0) >= this_month.ends_us:
        return
    for statement in (
        f"ALTER TABLE ledger DROP CONSTRAINT IF EXISTS {BOUND_CHECK}",
        f"ALTER TABLE ledger ADD CONSTRAINT {BOUND_CHECK} CHECK (recorded_at_us < {next_month.ends_us}) NOT VALID",
        f"ALTER TABLE ledger VALIDATE CONSTRAINT {BOUND_CHECK}",
    ):
        connection.exec_driver_sql(statement)


def _proved_bound_us(connection: Any) -> int | None:
    its_own = f"conrelid = to_regclass('ledger') AND conname = '{BOUND_CHECK}' AND convalidated"
    query = f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE {its_own}"  # noqa: S608 - ours
    definition = connection.exec_driver_sql(query).scalar()
    return None if definition is None else int(re.findall(r"\d+", definition)[0])


def _partition() -> None:
    connection = op.get_bind()
    first = FIRST_PARTITION
    this_month, *months = months_from(datetime.now(UTC), 1 + MONTHS_AHEAD)
    # Of a new database the table is empty.
    bound_us = max(_proved_bound_us(connection) or 0, this_month.ends_us)
    last_id = connection.exec_driver_sql("SELECT coalesce(max(entry_id), 0) FROM ledger").scalar_one()
    for statement in (
        f"ALTER TABLE ledger RENAME TO {first}",
        f"ALTER TABLE {first} ALTER COLUMN entry_id DROP IDENTITY",
        *(
            f"ALTER INDEX ledger_{name} RENAME TO {first}_{name}"
            for name in ("pkey", "books_once", "credits_by_account", "by_account")
        ),
        f"CREATE SEQUENCE ledger_entry_id_seq START {last_id + 1}",
        f"CREATE TABLE ledger (LIKE {first} INCLUDING CONSTRAINTS) PARTITION BY RANGE (recorded_at_us)",
        f"ALTER TABLE ledger DROP CONSTRAINT IF EXISTS {BOUND_CHECK}",
        "ALTER TABLE ledger ALTER COLUMN entry_id SET DEFAULT nextval('ledger_entry_id_seq')",
        "ALTER SEQUENCE ledger_entry_id_seq OWNED BY ledger.entry_id",
        f"ALTER TABLE ledger ATTACH PARTITION {first} FOR VALUES FROM (MINVALUE) TO ({bound_us})",
        f"ALTER TABLE {first} DROP CONSTRAINT IF EXISTS {BOUND_CHECK}",
        # Of the first partition the existing ones are used.
        "CREATE INDEX ledger_by_account ON ledger (account_id, entry_id)",
        f"CREATE INDEX ledger_credits_by_account ON ledger ({RARE_BY_ACCOUNT}",
        f"ALTER TRIGGER ledger_refuses_change ON {first} RENAME TO {first}_refuses_change",
    ):
        connection.exec_driver_sql(statement)
    guard_partition(connection, "ledger")
    for month in months:
        if month.start_us >= bound_us:
            create_partition(connection, month)

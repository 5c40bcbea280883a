"""Creates what came after 0.1.0: closed months, spend limits, notices, owed credit, sums of usage, two indexes.

PostgreSQL's ledger becomes partitioned by month. The table of today becomes the first partition, with all of its rows
and indexes: nothing is copied, and nothing is read while writes wait: a check that was validated before proves that all
rows are within its bounds. What a unique index cannot guard across partitions (one entry of each kind for a request) is
guarded within each, and by the hold's state. SQLite's ledger stays one table, whose rows may be deleted once their
month was marked as pruned.

An account's row says whether it has spend limits, so that a request of an account without them reads nothing more.
Releases up to 0.1.0, of which replicas may still run beside newer ones, do not count for spend limits, and would not
take owed credit from what is released: they are refused holds of such accounts. They do not say `legato.writer`, as
later ones do at the start of each write. SQLite has one process, which does not start any more.

Triggers keep the sums of an account's counters by key, in the transaction that changes one: they are right whichever
release writes it. Their first rows are added up here, while writers wait: some seconds for each million counters.
"""

# Names are ours:
# ruff: noqa: S608

import re
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from services.metering.months.store.partitions import (
    FIRST_PARTITION,
    RARE_BY_ACCOUNT,
    create_partition,
    guard_partition,
    months_from,
)

revision = "0015"
down_revision = "0004"
# Processes that do not know it would not count what is spent, and let an account spend what it owes.
REFUSES_OLDER = True
# PostgreSQL builds it before this script runs, while requests are charged.
BUILT_CONCURRENTLY = {"ledger_by_account": ("ledger", "account_id, entry_id")}

MONTHS_AHEAD = 3
# The check that proves the bounds of the first partition, until it is one.
BOUND_CHECK = "ledger_is_of_first_partition"
TOKENS = "prompt_tokens cached_tokens completion_tokens"
COUNTED = f"requests {TOKENS} cost_nanos loss_nanos".split()
LIMITS_OF_RETENTION = "ledger_pruned_before_us usage_marked_before_us usage_summed_before_us"
# A month's accounts are written in portions; the month's own row, written last, makes them final.
IS_CLOSED = "EXISTS (SELECT 1 FROM closings WHERE closings.month_us = OLD.month_us)"
FUNCTION = "RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS"
# What each change of a counter adds to the sum.
DIFFERENCES = {"INSERT": "NEW.{0}", "UPDATE": "NEW.{0} - OLD.{0}", "DELETE": "-OLD.{0}"}


def _required(kind: Any, names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names.split()]


def upgrade() -> None:
    is_sqlite = op.get_context().dialect.name == "sqlite"
    _index_ledger()
    _add_to_accounts()
    _create_spends()
    _create_closings()
    _create_outbox()
    _create_account_hours(is_sqlite=is_sqlite)
    if is_sqlite:
        _guard_sqlite()
    else:
        _guard_postgresql()
        _partition()


def _index_ledger() -> None:
    # Changes of a balance other than charges, whose sums are in the hourly counters: a charge costs nothing more.
    is_rare = sa.text("kind <> 'charge'")
    columns = ["account_id", "recorded_at_us", "entry_id"]
    op.create_index("ledger_credits_by_account", "ledger", columns, postgresql_where=is_rare, sqlite_where=is_rare)
    for name, (table, built) in BUILT_CONCURRENTLY.items():
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({built})")


def _add_to_accounts() -> None:
    has_limits = sa.Column("has_spend_limits", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("accounts", has_limits)
    # None: the service's threshold.
    op.add_column("accounts", sa.Column("low_balance_nanos", sa.BigInteger))
    # What earlier returns of payments could not take is a loss, and stays one: accounts owe nothing at first.
    owed = "owed_nanos BIGINT NOT NULL DEFAULT 0 CONSTRAINT owed_is_not_negative CHECK (owed_nanos >= 0)"
    op.execute(f"ALTER TABLE accounts ADD COLUMN {owed}")
    op.create_table(
        "owed_changes",
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        *_required(sa.BigInteger, "owed_nanos recorded_at_us"),
    )
    op.create_index("owed_changes_by_account", "owed_changes", ["account_id"])


def _create_spends() -> None:
    op.create_table(
        "spends",
        sa.Column("spend_id", sa.Text, primary_key=True),
        *_required(sa.Text, "account_id key_id"),
        *(sa.Column(f"{period}_limit_nanos", sa.BigInteger) for period in ("day", "month", "total")),
        *_required(sa.BigInteger, "day_us month_us day_spent_nanos month_spent_nanos total_spent_nanos held_nanos"),
        # A key that replaces another names its row, which counts for both. Few do.
        sa.Column("shared_spend_id", sa.Text, nullable=False, server_default=""),
        sa.CheckConstraint("held_nanos >= 0 AND total_spent_nanos >= 0", name="spend_is_not_negative"),
    )
    op.create_index("spends_by_account", "spends", ["account_id", "key_id"], unique=True)
    is_shared = sa.text("shared_spend_id <> ''")
    op.create_index(
        "spends_by_shared", "spends", ["shared_spend_id"], sqlite_where=is_shared, postgresql_where=is_shared
    )


def _create_closings() -> None:
    op.create_table(
        "closings",
        sa.Column("month_us", sa.BigInteger, primary_key=True, autoincrement=False),
        *_required(sa.BigInteger, "ends_us entries customer_nanos revenue_nanos loss_nanos external_nanos"),
        *_required(sa.BigInteger, "accounts balance_nanos closed_at_us"),
        *_required(sa.Text, "entries_hash accounts_hash previous_hash closing_hash"),
    )
    op.create_table(
        "account_closings",
        sa.Column("month_us", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account_id", sa.Text, primary_key=True),
        *_required(sa.BigInteger, "entries granted_nanos adjusted_nanos charged_nanos loss_nanos"),
        *_required(sa.BigInteger, f"requests {TOKENS}"),
        *_required(sa.BigInteger, "balance_nanos total_entries total_credited_nanos total_charged_nanos"),
    )
    op.create_table(
        "pruned_credits",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        *_required(sa.BigInteger, "customer_nanos recorded_at_us revenue_nanos loss_nanos external_nanos"),
    )
    retention = op.create_table(
        "retention",
        sa.Column("retention_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("lease_holder", sa.Text, nullable=False),
        *_required(sa.BigInteger, f"lease_until_us {LIMITS_OF_RETENTION}"),
        sa.CheckConstraint("retention_id = 1", name="retention_is_one_row"),
    )
    none_yet = dict.fromkeys(f"lease_until_us {LIMITS_OF_RETENTION}".split(), 0)
    op.bulk_insert(retention, [{"retention_id": 1, "lease_holder": "", **none_yet}])


def _create_outbox() -> None:
    op.create_table(
        "notices",
        sa.Column("notice_id", sa.Text, primary_key=True),
        *_required(sa.Text, "kind account_id key_id period"),
        *_required(sa.BigInteger, "amount_nanos threshold_nanos recorded_at_us"),
        sa.Column("acknowledged_at_us", sa.BigInteger),
    )
    op.create_index("notices_by_acknowledgement", "notices", ["acknowledged_at_us", "recorded_at_us"])
    op.create_table(
        "account_changes",
        sa.Column("change_id", sa.Text, primary_key=True),
        *_required(sa.Text, "action account_id key_id user_id session_id"),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
    )


def _create_account_hours(*, is_sqlite: bool) -> None:
    keys = ("account_id", "hour_us", "class_id")
    op.create_table(
        "account_hours",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("hour_us", sa.BigInteger, primary_key=True),
        sa.Column("class_id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTED),
        sqlite_with_rowid=False,
    )
    key = ", ".join(keys)
    columns = f"{key}, {', '.join(COUNTED)}"
    added = ", ".join(f"{name} = account_hours.{name} + excluded.{name}" for name in COUNTED)
    for change, difference in DIFFERENCES.items():
        row = "OLD" if change == "DELETE" else "NEW"
        values = ", ".join([*(f"{row}.{name}" for name in keys), *(difference.format(name) for name in COUNTED)])
        add = f"INSERT INTO account_hours ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {added}"
        name = f"usage_hours_count_{change.lower()}"
        if is_sqlite:
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON usage_hours BEGIN {add}; END")
        else:
            op.execute(f"CREATE FUNCTION {name}() {FUNCTION} $$ BEGIN {add}; RETURN NULL; END $$")
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON usage_hours FOR EACH ROW EXECUTE FUNCTION {name}()")
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTED)
    op.execute(f"INSERT INTO account_hours ({columns}) SELECT {key}, {sums} FROM usage_hours GROUP BY {key}")


def _guard_sqlite() -> None:
    op.execute("DROP TRIGGER ledger_refuses_delete")
    is_kept = "WHEN OLD.recorded_at_us >= (SELECT ledger_pruned_before_us FROM retention)"
    for table, changes, condition in (
        ("closings", ("UPDATE", "DELETE"), ""),
        ("account_closings", ("UPDATE", "DELETE"), f"WHEN {IS_CLOSED}"),
        ("owed_changes", ("UPDATE", "DELETE"), ""),
        ("ledger", ("DELETE",), is_kept),
    ):
        for change in changes:
            op.execute(
                f"CREATE TRIGGER {table}_refuses_{change.lower()} BEFORE {change} ON {table}"
                f" {condition} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def _guard_postgresql() -> None:
    for table in ("closings", "owed_changes"):
        guard_partition(op.get_bind(), table)
    op.execute(
        f"CREATE FUNCTION refuse_change_of_closed() {FUNCTION}"
        f" $$ BEGIN IF {IS_CLOSED} THEN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END IF;"
        " IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER account_closings_refuses_change BEFORE UPDATE OR DELETE ON account_closings"
        " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_closed()"
    )
    op.execute(
        f"CREATE FUNCTION refuse_older_writer() {FUNCTION}"
        " $$ BEGIN IF EXISTS (SELECT 1 FROM accounts WHERE account_id = NEW.account_id"
        " AND (has_spend_limits OR owed_nanos > 0)) THEN RAISE EXCEPTION"
        " 'this metering is older than the spend limits or owed credit of account %: replace it by the newer release',"
        " NEW.account_id; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER holds_refuse_older_writer BEFORE INSERT OR UPDATE ON holds FOR EACH ROW"
        " WHEN (coalesce(current_setting('legato.writer', true), '') = '') EXECUTE FUNCTION refuse_older_writer()"
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
    query = f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE {its_own}"
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

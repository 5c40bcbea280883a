"""Creates accounts, holds, the ledger, usage counters, prices, and claims on Idempotency-Keys: what 0.1.0 has.

Holds and the ledger have no foreign keys: PostgreSQL would lock one row of prices for every request. The audit checks
the references instead. Checks compare with each value: for an IN, SQLite would build a temporary table in each checked
row. Of claims only keyed digests are stored, for a day.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None

TOKENS = "prompt_tokens cached_tokens completion_tokens"
APPEND_ONLY = ("ledger", "price_versions", "prices")


def _required(kind: Any, names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names.split()]


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("balance_nanos", sa.BigInteger, nullable=False),
        sa.Column("held_nanos", sa.BigInteger, nullable=False),
        sa.CheckConstraint("0 <= held_nanos AND held_nanos <= balance_nanos", name="account_is_covered"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "holds",
        sa.Column("request_id", sa.Text, primary_key=True),
        *_required(sa.Text, "account_id key_id class_id state"),
        sa.Column("amount_nanos", sa.BigInteger, nullable=False),
        sa.Column("price_version", sa.BigInteger, nullable=False),
        sa.Column("deadline_at_us", sa.BigInteger),
        *_required(sa.BigInteger, f"{TOKENS} charged_nanos loss_nanos loss_bound_nanos"),
        sa.Column("basis", sa.Text),
        sa.Column("end", sa.Text),
        sa.Column("counted_hour_us", sa.BigInteger),
        sa.Column("reserved_at_us", sa.BigInteger),
        sa.Column("resolved_at_us", sa.BigInteger),
        sa.CheckConstraint(
            "state = 'held' OR state = 'settled' OR state = 'void' OR state = 'swept'", name="hold_state_is_known"
        ),
        sa.CheckConstraint(
            "amount_nanos >= 0 AND charged_nanos >= 0 AND loss_nanos >= 0 AND loss_bound_nanos >= 0",
            name="hold_is_not_negative",
        ),
        sa.CheckConstraint("state = 'void' OR price_version > 0", name="hold_has_its_price"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ledger",
        sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        *_required(sa.Text, "kind request_id account_id"),
        *_required(sa.BigInteger, "customer_nanos recorded_at_us revenue_nanos loss_nanos external_nanos"),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("class_id", sa.Text, nullable=False),
        *_required(sa.BigInteger, f"price_version hour_us requests {TOKENS}"),
        sa.Column("basis", sa.Text),
        sa.Column("end", sa.Text),
        sa.Column("reason", sa.Text),
        sa.CheckConstraint(
            "customer_nanos + revenue_nanos + loss_nanos + external_nanos = 0", name="ledger_legs_sum_to_zero"
        ),
        sa.CheckConstraint(
            "kind = 'charge' OR kind = 'late_charge' OR kind = 'loss' OR kind = 'grant' OR kind = 'adjustment'",
            name="ledger_kind_is_known",
        ),
        sa.CheckConstraint(
            "(kind <> 'charge' AND kind <> 'late_charge') OR (key_id <> '' AND class_id <> '' AND price_version > 0"
            " AND hour_us > 0 AND customer_nanos <= 0)",
            name="ledger_charge_is_whole",
        ),
    )
    op.create_index("ledger_books_once", "ledger", ["kind", "request_id"], unique=True)
    op.create_table(
        "usage_hours",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("hour_us", sa.BigInteger, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("class_id", sa.Text, primary_key=True),
        *_required(sa.BigInteger, f"requests {TOKENS} cost_nanos loss_nanos"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "price_versions",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("effective_from_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "prices",
        sa.Column("version", sa.BigInteger, sa.ForeignKey("price_versions.version"), primary_key=True),
        sa.Column("class_id", sa.Text, primary_key=True),
        *_required(sa.BigInteger, "input_nanos_per_million cached_input_nanos_per_million output_nanos_per_million"),
        sa.CheckConstraint(
            "input_nanos_per_million >= 0 AND cached_input_nanos_per_million >= 0 AND output_nanos_per_million >= 0",
            name="price_is_not_negative",
        ),
    )
    op.create_table(
        "claims",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("key_digest", sa.LargeBinary, primary_key=True),
        sa.Column("body_digest", sa.LargeBinary, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("claimed_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("claims_by_age", "claims", ["claimed_at_us"])
    is_live = "WHERE state = 'held'"
    if op.get_context().dialect.name == "sqlite":
        # One index serves to count those of a key and to find those past their deadline: they are few.
        op.execute(f"CREATE INDEX live_holds ON holds (key_id, account_id, deadline_at_us) {is_live}")
        _guard_sqlite()
    else:
        # Dead entries matter least by deadline.
        op.execute(f"CREATE INDEX live_holds_by_deadline ON holds (deadline_at_us) {is_live}")
        op.execute(f"CREATE INDEX live_holds_by_key ON holds (key_id, account_id) {is_live}")
        _guard_postgresql()


def _guard_sqlite() -> None:
    for table in APPEND_ONLY:
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_refuses_{change.lower()} BEFORE {change} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )

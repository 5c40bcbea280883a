"""Creates accounts, holds, the ledger, usage counters and prices.

Holds and the ledger have no foreign keys: PostgreSQL would lock one row of prices for every request. The audit checks
the references instead.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

APPEND_ONLY = ("ledger", "price_versions", "prices")


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("balance_nanos", sa.BigInteger, nullable=False),
        sa.Column("held_nanos", sa.BigInteger, nullable=False),
        sa.CheckConstraint("0 <= held_nanos AND held_nanos <= balance_nanos", name="account_is_covered"),
    )
    op.create_table(
        "holds",
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("class_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("amount_nanos", sa.BigInteger, nullable=False),
        sa.Column("price_version", sa.BigInteger, nullable=False),
        sa.Column("deadline_at_us", sa.BigInteger),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("charged_nanos", sa.BigInteger, nullable=False),
        sa.Column("loss_nanos", sa.BigInteger, nullable=False),
        sa.Column("loss_bound_nanos", sa.BigInteger, nullable=False),
        sa.Column("basis", sa.Text),
        sa.Column("end", sa.Text),
        sa.Column("counted_hour_us", sa.BigInteger),
        sa.Column("reserved_at_us", sa.BigInteger),
        sa.Column("resolved_at_us", sa.BigInteger),
        sa.CheckConstraint("state IN ('held', 'settled', 'void', 'swept')", name="hold_state_is_known"),
        sa.CheckConstraint(
            "amount_nanos >= 0 AND charged_nanos >= 0 AND loss_nanos >= 0 AND loss_bound_nanos >= 0",
            name="hold_is_not_negative",
        ),
        sa.CheckConstraint("state = 'void' OR price_version > 0", name="hold_has_its_price"),
    )
    op.create_index("live_holds_by_deadline", "holds", ["deadline_at_us"],
                    sqlite_where=sa.text("state = 'held'"), postgresql_where=sa.text("state = 'held'"))  # fmt: skip
    op.create_table(
        "ledger",
        sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("customer_nanos", sa.BigInteger, nullable=False),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
        sa.Column("revenue_nanos", sa.BigInteger, nullable=False),
        sa.Column("loss_nanos", sa.BigInteger, nullable=False),
        sa.Column("external_nanos", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("class_id", sa.Text, nullable=False),
        sa.Column("price_version", sa.BigInteger, nullable=False),
        sa.Column("hour_us", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("basis", sa.Text),
        sa.Column("end", sa.Text),
        sa.Column("reason", sa.Text),
        sa.CheckConstraint(
            "customer_nanos + revenue_nanos + loss_nanos + external_nanos = 0", name="ledger_legs_sum_to_zero"
        ),
        sa.CheckConstraint(
            "kind IN ('grant', 'adjustment', 'charge', 'late_charge', 'loss')", name="ledger_kind_is_known"
        ),
        sa.CheckConstraint(
            "kind NOT IN ('charge', 'late_charge') OR (key_id <> '' AND class_id <> '' AND price_version > 0"
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
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
        sa.Column("loss_nanos", sa.BigInteger, nullable=False),
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
        sa.Column("input_nanos_per_million", sa.BigInteger, nullable=False),
        sa.Column("cached_input_nanos_per_million", sa.BigInteger, nullable=False),
        sa.Column("output_nanos_per_million", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "input_nanos_per_million >= 0 AND cached_input_nanos_per_million >= 0 AND output_nanos_per_million >= 0",
            name="price_is_not_negative",
        ),
    )
    if op.get_context().dialect.name == "sqlite":
        _guard_sqlite()
    else:
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

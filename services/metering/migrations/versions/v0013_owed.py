"""Creates what accounts owe for payments that were returned.

What earlier returns could not take is a loss, and stays one: accounts owe nothing at first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
# Processes that do not know it would let an account spend what it owes.
REFUSES_OLDER = True


def upgrade() -> None:
    owed = "owed_nanos BIGINT NOT NULL DEFAULT 0 CONSTRAINT owed_is_not_negative CHECK (owed_nanos >= 0)"
    op.execute(f"ALTER TABLE accounts ADD COLUMN {owed}")
    op.create_table(
        "owed_changes",
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("owed_nanos", sa.BigInteger, nullable=False),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("owed_changes_by_account", "owed_changes", ["account_id"])
    if op.get_context().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER owed_changes_refuses_{change.lower()} BEFORE {change} ON owed_changes"
                " BEGIN SELECT RAISE(ABORT, 'owed_changes is append-only'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER owed_changes_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON owed_changes"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )

"""Creates what came after 0.2.0: the accounts that were closed for good, and the order of a document's passages."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "closed_accounts",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("closed_at_us", sa.BigInteger, nullable=False),
    )
    op.add_column("passages", sa.Column("position", sa.Integer))

"""Creates the claims on Idempotency-Keys. Only keyed digests are stored, for a day."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "claims",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("key_digest", sa.LargeBinary, primary_key=True),
        sa.Column("body_digest", sa.LargeBinary, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("claimed_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("claims_by_age", "claims", ["claimed_at_us"])

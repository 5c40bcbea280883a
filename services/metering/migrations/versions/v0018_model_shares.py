"""Adds the routers' shares of models' limits. Older processes neither read nor write them."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "model_shares",
        sa.Column("limit_name", sa.Text, primary_key=True),
        sa.Column("holder_id", sa.Text, primary_key=True),
        sa.Column("instance", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS.split()),
    )


COUNTS = "began_at_us sequence told_limit ceiling places wanted renewed_at_us kept_until_us"

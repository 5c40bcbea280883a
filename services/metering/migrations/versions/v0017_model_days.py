"""Adds the calls to models to a request, and the sums of the ledger by day and model.

Older processes do not name the column, and leave it empty: such requests are of an unknown model. No chat writes the
sums. They are made of the ledger afterwards, from its first entry on, and the last entry that they have is noted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

SUMMED = (
    "requests prompt_tokens cached_tokens completion_tokens charged_nanos lost_nanos granted_nanos adjusted_nanos"
    " returned_nanos costed_nanos calls told_prompt_tokens told_cached_tokens cache_write_tokens told_completion_tokens"
    " cost_nanos uncosted_calls"
)


def upgrade() -> None:
    op.add_column("holds", sa.Column("model_calls", sa.Text))
    op.create_table(
        "model_days",
        sa.Column("day_us", sa.BigInteger, primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("account_id", "class_id", "provider", "model_name")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMMED.split()),
        sqlite_with_rowid=False,
    )
    op.add_column("retention", sa.Column("reported_to_id", sa.BigInteger, nullable=False, server_default="0"))

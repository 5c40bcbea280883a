"""Creates what came after 0.2.0: statistics of usage; of a request the version of the routes, the calls to models, its
times and the API by which it came; what changed, for the audit log; the versions of files that the processes of a fleet
have read; and of usage the tokens that providers write to their caches, and those of reasoning.

Older processes do not name these columns, and leave them empty, or 0: such requests are of an unknown model, and their
times are unknown. No chat writes the statistics. They are made of the ledger afterwards, from its first entry on, and
the last entry that they have is noted.
"""

import sqlalchemy as sa
from alembic import op

from services.metering.migrations.usage_columns import add_usage_column

revision = "0023"
down_revision = "0015"

TOKENS = "prompt_tokens cached_tokens completion_tokens"
SUMMED = (
    f"requests {TOKENS} charged_nanos lost_nanos granted_nanos adjusted_nanos returned_nanos costed_nanos calls"
    " told_prompt_tokens told_cached_tokens told_completion_tokens cost_nanos uncosted_calls"
)


def upgrade() -> None:
    for name, kind in HOLDS.items():
        op.add_column("holds", sa.Column(name, kind))
    op.add_column("account_changes", sa.Column("changes", sa.Text))
    op.add_column("retention", sa.Column("reported_to_id", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "usage_days",
        *(sa.Column(name, kind, primary_key=True, autoincrement=False) for name, kind in USAGE_DAY.items()),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMMED.split()),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("first_token", "duration", "failures")),
        sqlite_with_rowid=False,
    )
    for name in ("cache_write_tokens", "reasoning_tokens"):
        add_usage_column(name)
    op.create_table(
        "staged_files",
        sa.Column("file", sa.Text, primary_key=True),
        sa.Column("process_id", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
    )


HOLDS = {
    "routes_version": sa.Text,
    "model_calls": sa.Text,
    "first_token_ms": sa.BigInteger,
    "duration_ms": sa.BigInteger,
    "api": sa.Text,
}
USAGE_DAY = {
    "of_key": sa.Boolean,
    "span": sa.Text,
    "start_us": sa.BigInteger,
    "account_id": sa.Text,
    "key_id": sa.Text,
    "class_id": sa.Text,
    "provider": sa.Text,
    "model_name": sa.Text,
}

"""Adds how long chats took, to their holds and as sums, and which chats failed. Older processes know none of these: the
times of what they settle stay unknown."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    for name in ("first_token_ms", "duration_ms"):
        op.add_column("holds", sa.Column(name, sa.BigInteger))
    for table, key in KEYS.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, primary_key=True, autoincrement=False) for name, kind in key.items()),
            sa.Column(*COUNTS[table], nullable=False),
            sqlite_with_rowid=False,
        )


KEYS = {
    "chat_times": {
        "account_id": sa.Text,
        "grain": sa.Text,
        "key_id": sa.Text,
        "start_us": sa.BigInteger,
        "class_id": sa.Text,
        "measure": sa.Text,
    },
    "failure_hours": {
        "account_id": sa.Text,
        "hour_us": sa.BigInteger,
        "key_id": sa.Text,
        "class_id": sa.Text,
        "reason": sa.Text,
        "is_cut": sa.Boolean,
    },
}
# What each row tells.
COUNTS = {"chat_times": ("chats_by_bucket", sa.Text), "failure_hours": ("chats", sa.BigInteger)}

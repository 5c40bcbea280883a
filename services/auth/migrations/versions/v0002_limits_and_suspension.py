"""Adds limits of accounts and of single keys, suspension, and when a key was last used."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name in ("tokens_per_minute", "concurrent_requests", "suspended_at_us"):
        op.add_column("accounts", sa.Column(name, sa.BigInteger))
    for name in ("requests_per_minute", "tokens_per_minute", "concurrent_requests", "last_used_hour_us"):
        op.add_column("api_keys", sa.Column(name, sa.BigInteger))

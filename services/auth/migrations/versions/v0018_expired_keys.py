"""Finds the keys of an account that expired lately."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_index("api_keys_by_account_expiry", "api_keys", ["account_id", "expires_at_us"])

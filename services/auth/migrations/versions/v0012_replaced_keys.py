"""Adds an index of keys by the one that they replace, so that the page of a key need not list the account's keys."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_index("api_keys_by_replaced", "api_keys", ["replaces_key_id"])

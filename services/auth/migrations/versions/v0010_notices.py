"""Creates notices to owners with their deliveries, webhooks, and the networks that keys were used from."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    # The last notice about its expiry, in days before; None: there was none.
    op.add_column("api_keys", sa.Column("expiry_noted_days", sa.Integer))
    op.create_index("api_keys_by_expiry", "api_keys", ["expires_at_us"])
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("webhooks_by_account", "webhooks", ["account_id", "created_at_us"])
    op.create_table(
        "muted_notices",
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
    )
    op.create_table(
        "notices",
        sa.Column("notice_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("notices_by_account", "notices", ["account_id", "created_at_us"])
    op.create_index("notices_by_age", "notices", ["created_at_us"])
    op.create_table(
        "notice_deliveries",
        sa.Column("delivery_id", sa.Text, primary_key=True),
        sa.Column("notice_id", sa.Text, sa.ForeignKey("notices.notice_id"), nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("recipient_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("failure", sa.Text, nullable=False),
        sa.Column("attempted_at_us", sa.BigInteger),
        sa.Column("next_attempt_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("notice_deliveries_by_notice", "notice_deliveries", ["notice_id", "delivery_id"])
    op.create_index("notice_deliveries_by_state", "notice_deliveries", ["state", "next_attempt_at_us"])
    op.create_table(
        "key_networks",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("pepper_version", sa.Integer, nullable=False),
        sa.Column("first_used_at_us", sa.BigInteger, nullable=False),
        sa.Column("last_used_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("key_networks_by_use", "key_networks", ["last_used_at_us"])

"""The tables of notices. Addresses, secrets and what notices say are encrypted like email addresses."""

import sqlalchemy as sa

from services.auth.records.notices import Channel, DeliveryState, Kind
from services.auth.store.encrypted import Encrypted
from services.auth.store.rows import Enumerated
from services.auth.store.tables import metadata

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("webhook_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
    sa.Column("url", Encrypted, nullable=False),
    sa.Column("secret", Encrypted, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Index("webhooks_by_account", "account_id", "created_at_us"),
)

# Kinds that are not mailed.
muted_notices = sa.Table(
    "muted_notices",
    metadata,
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
)

notices = sa.Table(
    "notices",
    metadata,
    sa.Column("notice_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
    sa.Column("kind", Enumerated(Kind), nullable=False),
    # Empty: about the account as a whole.
    sa.Column("key_id", sa.Text, nullable=False),
    # JSON, as webhooks get it.
    sa.Column("body", Encrypted, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Index("notices_by_account", "account_id", "created_at_us"),
    sa.Index("notices_by_age", "created_at_us"),
)

notice_deliveries = sa.Table(
    "notice_deliveries",
    metadata,
    sa.Column("delivery_id", sa.Text, primary_key=True),
    sa.Column("notice_id", sa.Text, sa.ForeignKey("notices.notice_id"), nullable=False),
    sa.Column("channel", Enumerated(Channel), nullable=False),
    # A webhook or a user.
    sa.Column("recipient_id", sa.Text, nullable=False),
    sa.Column("state", Enumerated(DeliveryState), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    # Of the last attempt; empty: none.
    sa.Column("failure", sa.Text, nullable=False),
    sa.Column("attempted_at_us", sa.BigInteger),
    # While an attempt runs: when another process may take it over.
    sa.Column("next_attempt_at_us", sa.BigInteger, nullable=False),
    sa.Index("notice_deliveries_by_notice", "notice_id", "delivery_id"),
    sa.Index("notice_deliveries_by_recipient", "state", "recipient_id", "next_attempt_at_us"),
)

# Networks that keys were used from, as digests. Without a foreign key, which would lock the key before its account.
key_networks = sa.Table(
    "key_networks",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("pepper_version", sa.Integer, nullable=False),
    sa.Column("first_used_at_us", sa.BigInteger, nullable=False),
    sa.Column("last_used_at_us", sa.BigInteger, nullable=False),
    sa.Index("key_networks_by_use", "last_used_at_us"),
)

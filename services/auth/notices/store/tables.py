"""The tables of notices. Addresses, secrets and what notices say are encrypted like email addresses."""

import sqlalchemy as sa

from services.auth.core.store.encrypted import Encrypted
from services.auth.core.store.tables import metadata, of_account
from services.auth.notices.records import Delivery, OwnerNotice, Webhook
from services.chassis.database.records import columns_of

webhooks = sa.Table(
    "webhooks",
    metadata,
    *columns_of(Webhook, "webhook_id", account_id=of_account(), url=Encrypted, secret=Encrypted),
    sa.Index("webhooks_by_account", "account_id", "created_at_us"),
)

# Kinds that are not mailed.
muted_notices = sa.Table(
    "muted_notices",
    metadata,
    sa.Column("account_id", sa.Text, of_account(), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
)

notices = sa.Table(
    "notices",
    metadata,
    *columns_of(OwnerNotice, "notice_id", account_id=of_account(), body=Encrypted),
    sa.Index("notices_by_account", "account_id", "created_at_us"),
    sa.Index("notices_by_age", "created_at_us"),
)

notice_deliveries = sa.Table(
    "notice_deliveries",
    metadata,
    *columns_of(Delivery, "delivery_id", notice_id=sa.ForeignKey("notices.notice_id"), attempts=sa.Integer),
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

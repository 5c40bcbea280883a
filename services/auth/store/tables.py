"""The tables of auth, the same in SQLite and PostgreSQL. Times are microseconds since 1970."""

import sqlalchemy as sa

from services.auth.records.keys import Scope
from services.auth.store.rows import EnumeratedSet, StoredAllowance

metadata = sa.MetaData()

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("preferred_class", sa.Text, nullable=False),
    sa.Column("requests_per_minute", sa.BigInteger),
    sa.Column("tokens_per_minute", sa.BigInteger),
    sa.Column("concurrent_requests", sa.BigInteger),
    sa.Column("suspended_at_us", sa.BigInteger),
    sa.Column("search", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("memory", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("attachments", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("allowed_classes", StoredAllowance),
    sa.Index("accounts_by_age", "created_at_us", "account_id"),
)

keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # Empty means all scopes.
    sa.Column("scopes", EnumeratedSet(Scope), nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("pepper_version", sa.Integer, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("expires_at_us", sa.BigInteger),
    sa.Column("revoked_at_us", sa.BigInteger),
    sa.Column("requests_per_minute", sa.BigInteger),
    sa.Column("tokens_per_minute", sa.BigInteger),
    sa.Column("concurrent_requests", sa.BigInteger),
    sa.Column("last_used_hour_us", sa.BigInteger),
    # A user; empty: the command line.
    sa.Column("created_by", sa.Text, nullable=False, server_default=""),
    # None: it replaces no other key.
    sa.Column("replaces_key_id", sa.Text),
    # The console's form that created it, which creates no second one.
    sa.Column("form_id", sa.Text),
    # The user whose playground is counted under it; such a key has no secret. None: it is a key.
    sa.Column("playground_user_id", sa.Text),
    sa.Column("allowed_classes", StoredAllowance),
    # The last notice about its expiry, in days before; None: there was none.
    sa.Column("expiry_noted_days", sa.Integer),
    sa.Index("api_keys_by_expiry", "expires_at_us"),
    sa.Index("api_keys_by_age", "account_id", "created_at_us", "key_id"),
    sa.Index("api_keys_by_form", "account_id", "form_id", unique=True),
    sa.Index("api_keys_by_playground", "account_id", "playground_user_id", unique=True),
    sa.Index("api_keys_by_replaced", "replaces_key_id"),
)

# An ended token is no longer here.
playground_tokens = sa.Table(
    "playground_tokens",
    metadata,
    sa.Column("token_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("pepper_version", sa.Integer, nullable=False),
    sa.Column("key_id", sa.Text, sa.ForeignKey("api_keys.key_id"), nullable=False),
    sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.session_id"), nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    sa.Index("playground_tokens_by_session", "session_id", "created_at_us"),
    sa.Index("playground_tokens_by_key", "key_id", "expires_at_us"),
)

# One row. Changes up to and including `forgotten` are no longer listed in `key_changes`. `peppers` has fingerprints of
# the peppers of the replica that started last.
epoch = sa.Table(
    "epoch",
    metadata,
    sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", sa.BigInteger, nullable=False),
    sa.Column("forgotten", sa.BigInteger, nullable=False),
    sa.Column("peppers", sa.Text, nullable=False, server_default=""),
    # None: no maintenance.
    sa.Column("maintenance_message", sa.Text),
    sa.Column("maintenance_retry_after_s", sa.Integer),
    sa.Column("maintenance_started_at_us", sa.BigInteger),
)

# Keys, and playground tokens.
key_changes = sa.Table(
    "key_changes",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),
)

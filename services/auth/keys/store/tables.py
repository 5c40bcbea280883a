"""The tables of keys, the same in SQLite and PostgreSQL. Times are microseconds since 1970.

The columns of most are the fields of a record: services/auth/keys/records.py tells what they mean.
"""

import sqlalchemy as sa

from services.auth.core.store.tables import StoredAllowance, metadata, of_account
from services.auth.keys.records import CallerGrant, Key, PlaygroundToken
from services.chassis.database.records import columns_of

keys = sa.Table(
    "api_keys",
    metadata,
    *columns_of(Key, "key_id", account_id=of_account(), pepper_version=sa.Integer, allowed_classes=StoredAllowance),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    # The console's form that created it, which creates no second one.
    sa.Column("form_id", sa.Text),
    # The last notice about its expiry, in days before; None: there was none.
    sa.Column("expiry_noted_days", sa.Integer),
    sa.Index("api_keys_by_expiry", "expires_at_us"),
    sa.Index("api_keys_by_age", "account_id", "created_at_us", "key_id"),
    sa.Index("api_keys_by_form", "account_id", "form_id", unique=True),
    sa.Index("api_keys_by_playground", "account_id", "playground_user_id", unique=True),
    sa.Index("api_keys_by_caller", "caller_name", "account_id", unique=True),
    sa.Index("api_keys_by_replaced", "replaces_key_id"),
)
# Others are what the requests of a playground or an internal program are counted under.
HAS_SECRET = keys.c.pepper_version > 0

caller_grants = sa.Table(
    "caller_grants",
    metadata,
    *columns_of(CallerGrant, "grant_id"),
    sa.Index("caller_grants_by_caller", "caller", "account_id", unique=True),
    sa.Index("caller_grants_by_age", "created_at_us", "grant_id"),
)

# An ended token is no longer here.
playground_tokens = sa.Table(
    "playground_tokens",
    metadata,
    *columns_of(
        PlaygroundToken,
        "token_id",
        pepper_version=sa.Integer,
        key_id=sa.ForeignKey("api_keys.key_id"),
        session_id=sa.ForeignKey("sessions.session_id"),
    ),
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

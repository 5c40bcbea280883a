"""The tables of users, the same in SQLite and PostgreSQL. Times are microseconds since 1970.

The columns of most are the fields of a record: services/auth/records tells what they mean. Of tokens and codes only
digests are stored, like those of keys: see services/auth/peppers.py.
"""

import sqlalchemy as sa

from services.auth.records.audit import AuditEvent
from services.auth.records.users import Challenge, Invitation, OidcIdentity, Passkey, Password, Totp, User, UserSession
from services.auth.store.encrypted import Encrypted
from services.auth.store.tables import metadata, of_account
from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change, from_json, to_json
from services.chassis.database.records import EnumeratedNumber, columns_of


class StoredChanges(sa.TypeDecorator[tuple[Change, ...]]):
    """Stores what an event changed, as JSON. NULL: nothing."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[Change, ...] | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> tuple[Change, ...] | None:
        return None if value is None else from_json(value)


def of_user() -> sa.ForeignKey:
    return sa.ForeignKey("users.user_id")


users = sa.Table(
    "users",
    metadata,
    *columns_of(User, "user_id", email=Encrypted),
    sa.Index("users_by_age", "created_at_us", "user_id"),
    sa.Index("users_by_email", "email"),
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("account_id", sa.Text, of_account(), primary_key=True),
    sa.Column("user_id", sa.Text, of_user(), primary_key=True),
    sa.Column("role", EnumeratedNumber(AccountRole), nullable=False),
    sa.Column("joined_at_us", sa.BigInteger, nullable=False),
    # Whether an owner gets notices by mail.
    sa.Column("is_mailed", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Index("memberships_by_user", "user_id", "joined_at_us"),
)

passkeys = sa.Table(
    "passkeys",
    metadata,
    *columns_of(Passkey, "passkey_id", user_id=of_user()),
    sa.Index("passkeys_by_credential", "credential_id", unique=True),
    sa.Index("passkeys_by_user", "user_id", "created_at_us"),
)

# A used code is no longer here.
recovery_codes = sa.Table(
    "recovery_codes",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("user_id", sa.Text, of_user(), nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Index("recovery_codes_by_user", "user_id"),
)

# argon2id. Signs no user in without a row in `totp`.
passwords = sa.Table("passwords", metadata, *columns_of(Password, "user_id", user_id=of_user()))

# Secrets of authenticator apps, encrypted.
totp = sa.Table("totp", metadata, *columns_of(Totp, "user_id", user_id=of_user()))

# Who a user is to an issuer of OpenID Connect.
oidc_identities = sa.Table(
    "oidc_identities",
    metadata,
    *columns_of(OidcIdentity, "identity_id", user_id=of_user()),
    sa.Index("oidc_identities_by_subject", "issuer", "subject", unique=True),
    sa.Index("oidc_identities_by_user", "user_id", "created_at_us"),
)

# A used link is no longer here. A user has one at most.
sign_in_links = sa.Table(
    "sign_in_links",
    metadata,
    sa.Column("user_id", sa.Text, of_user(), primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    sa.Index("sign_in_links_by_digest", "digest", unique=True),
)

# A used invitation is no longer here.
invitations = sa.Table(
    "invitations",
    metadata,
    *columns_of(Invitation, "invitation_id", account_id=of_account(), email=Encrypted),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Index("invitations_by_digest", "digest", unique=True),
    sa.Index("invitations_by_account", "account_id", "created_at_us"),
    sa.Index("invitations_by_email", "email", "created_at_us"),
)

# An ended session is no longer here.
sessions = sa.Table(
    "sessions",
    metadata,
    *columns_of(UserSession, "session_id", user_id=of_user()),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    # The token before, which is accepted a little longer.
    sa.Column("previous_digest", sa.LargeBinary),
    sa.Column("previous_until_us", sa.BigInteger),
    sa.Index("sessions_by_digest", "digest", unique=True),
    sa.Index("sessions_by_previous_digest", "previous_digest"),
    sa.Index("sessions_by_user", "user_id", "created_at_us"),
    sa.Index("sessions_by_age", "created_at_us"),
)

# What a passkey is to sign, and what else is good once and for minutes. A used challenge is no longer here.
challenges = sa.Table(
    "challenges",
    metadata,
    *columns_of(Challenge, "challenge_id"),
    sa.Index("challenges_by_expiry", "expires_at_us"),
)

# Buckets of GCRA (services/chassis/load/gcra.py). A full bucket is not here.
sign_in_rate_limits = sa.Table(
    "sign_in_rate_limits",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("full_at_ns", sa.BigInteger, nullable=False),
    sa.Index("sign_in_rate_limits_by_time", "full_at_ns"),
)

# Rows are added, and pruned when they are old, but never changed. Each has the code of the one before it.
audit_events = sa.Table(
    "audit_events",
    metadata,
    *columns_of(AuditEvent, "event_no", changes=StoredChanges),
    sa.Column("pepper_version", sa.Integer, nullable=False),
    sa.Column("previous_code", sa.LargeBinary, nullable=False),
    sa.Column("code", sa.LargeBinary, nullable=False),
    sa.Index("audit_events_by_account", "account_id", "event_no"),
    sa.Index("audit_events_by_user", "user_id", "event_no"),
    sa.Index("audit_events_by_object", "object_id", "event_no"),
    sa.Index("audit_events_by_time", "occurred_at_us"),
)

# One row: the end of the chain, and the last event that was pruned.
audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("event_no", sa.BigInteger, nullable=False),
    sa.Column("code", sa.LargeBinary, nullable=False),
    sa.Column("pruned_no", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("pruned_pepper_version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pruned_code", sa.LargeBinary),
    # The first event of the last segment of its copy outside the database; None: there is none.
    sa.Column("copied_from_no", sa.BigInteger),
)

# Changes of other services that the log has, so that it has each once.
recorded_changes = sa.Table(
    "recorded_changes",
    metadata,
    sa.Column("change_id", sa.Text, primary_key=True),
    sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
    sa.Index("recorded_changes_by_time", "recorded_at_us"),
)

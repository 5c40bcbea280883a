"""The tables of accounts, users and the audit log, the same in SQLite and PostgreSQL. Times are microseconds since
1970.

The columns of most are the fields of a record: services/auth/core/records tells what they mean.
"""

import sqlalchemy as sa

from services.auth.core.records.accounts import Account, ClassAllowance
from services.auth.core.records.audit import AuditEvent
from services.auth.core.records.users import User, UserSession
from services.auth.core.store.encrypted import Encrypted
from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change, from_json, to_json
from services.chassis.database.records import EnumeratedNumber, columns_of

metadata = sa.MetaData()


class StoredAllowance(sa.TypeDecorator[ClassAllowance]):
    """Stores the names of allowed classes, separated by commas. NULL: all classes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: ClassAllowance | None, dialect: sa.Dialect) -> str | None:
        return None if value is None or value.class_ids is None else ",".join(value.class_ids)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> ClassAllowance:
        return ClassAllowance(None if value is None else tuple(name for name in value.split(",") if name))


def of_account() -> sa.ForeignKey:
    return sa.ForeignKey("accounts.account_id")


accounts = sa.Table(
    "accounts",
    metadata,
    *columns_of(Account, "account_id", allowed_classes=StoredAllowance),
    sa.Index("accounts_by_age", "created_at_us", "account_id"),
)


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

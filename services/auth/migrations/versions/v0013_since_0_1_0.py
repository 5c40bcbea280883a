"""Adds what auth has had since release 0.1.0: maintenance, users and how they sign in, playground tokens, the classes
that accounts and keys may use, notices to owners, and the audit log.

Indexes of existing keys are on columns that are added here, and are empty, but for that of their expiry.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0004"
# Processes that do not know the allowed classes would serve every class.
REFUSES_OLDER = True


def upgrade() -> None:
    _extend_tables()
    _create_people()
    _create_sign_in()
    _create_playground_tokens()
    _create_audit()
    _create_notices()


def _extend_tables() -> None:
    for column in (
        sa.Column("maintenance_message", sa.Text),
        sa.Column("maintenance_retry_after_s", sa.Integer),
        sa.Column("maintenance_started_at_us", sa.BigInteger),
    ):
        op.add_column("epoch", column)
    # None: all classes, which is what every account and key has had so far.
    op.add_column("accounts", sa.Column("allowed_classes", sa.Text))
    for column in (
        sa.Column("created_by", sa.Text, nullable=False, server_default=""),
        *_optional(sa.Text, "replaces_key_id", "form_id", "playground_user_id", "allowed_classes"),
        # The last notice about its expiry, in days before; None: there was none.
        sa.Column("expiry_noted_days", sa.Integer),
    ):
        op.add_column("api_keys", column)
    op.create_index("api_keys_by_form", "api_keys", ["account_id", "form_id"], unique=True)
    op.create_index("api_keys_by_playground", "api_keys", ["account_id", "playground_user_id"], unique=True)
    op.create_index("api_keys_by_expiry", "api_keys", ["expires_at_us"])
    op.create_index("api_keys_by_replaced", "api_keys", ["replaces_key_id"])


def _create_people() -> None:
    op.create_table(
        "users",
        _id("user_id"),
        *_required(sa.Text, "name", "email"),
        *_required(sa.BigInteger, "created_at_us"),
        *_required(sa.Boolean, "is_operator"),
        *_optional(sa.BigInteger, "disabled_at_us", "last_seen_hour_us"),
        sa.Index("users_by_age", "created_at_us", "user_id"),
        sa.Index("users_by_email", "email"),
    )
    op.create_table(
        "memberships",
        _id("account_id", "accounts.account_id"),
        _id("user_id", "users.user_id"),
        *_required(sa.Integer, "role"),
        *_required(sa.BigInteger, "joined_at_us"),
        sa.Column("is_mailed", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Index("memberships_by_user", "user_id", "joined_at_us"),
    )
    op.create_table(
        "invitations",
        _id("invitation_id"),
        *_required(sa.LargeBinary, "digest"),
        _reference("account_id", "accounts.account_id"),
        *_required(sa.Text, "email"),
        *_required(sa.Integer, "role"),
        *_required(sa.Text, "invited_by"),
        *_required(sa.BigInteger, "created_at_us", "expires_at_us"),
        sa.Index("invitations_by_digest", "digest", unique=True),
        sa.Index("invitations_by_account", "account_id", "created_at_us"),
        sa.Index("invitations_by_email", "email", "created_at_us"),
    )


def _create_sign_in() -> None:
    op.create_table(
        "passkeys",
        _id("passkey_id"),
        _reference("user_id", "users.user_id"),
        *_required(sa.LargeBinary, "credential_id", "credential"),
        *_required(sa.BigInteger, "sign_count"),
        *_required(sa.Text, "rp_id", "name"),
        *_required(sa.Boolean, "is_backed_up"),
        *_required(sa.BigInteger, "created_at_us"),
        *_optional(sa.BigInteger, "last_used_hour_us"),
        sa.Index("passkeys_by_credential", "credential_id", unique=True),
        sa.Index("passkeys_by_user", "user_id", "created_at_us"),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        _reference("user_id", "users.user_id"),
        *_required(sa.BigInteger, "created_at_us"),
        sa.Index("recovery_codes_by_user", "user_id"),
    )
    op.create_table(
        "passwords",
        _id("user_id", "users.user_id"),
        *_required(sa.Text, "hash"),
        *_required(sa.BigInteger, "set_at_us"),
    )
    op.create_table(
        "totp",
        _id("user_id", "users.user_id"),
        *_required(sa.LargeBinary, "secret"),
        *_required(sa.BigInteger, "last_step", "set_at_us"),
    )
    op.create_table(
        "oidc_identities",
        _id("identity_id"),
        _reference("user_id", "users.user_id"),
        *_required(sa.Text, "issuer", "subject"),
        *_required(sa.BigInteger, "created_at_us"),
        *_optional(sa.BigInteger, "last_used_hour_us"),
        sa.Index("oidc_identities_by_subject", "issuer", "subject", unique=True),
        sa.Index("oidc_identities_by_user", "user_id", "created_at_us"),
    )
    op.create_table(
        "sign_in_links",
        _id("user_id", "users.user_id"),
        *_required(sa.LargeBinary, "digest"),
        *_required(sa.BigInteger, "expires_at_us"),
        sa.Index("sign_in_links_by_digest", "digest", unique=True),
    )
    op.create_table(
        "sessions",
        _id("session_id"),
        *_required(sa.LargeBinary, "digest"),
        *_optional(sa.LargeBinary, "previous_digest"),
        *_optional(sa.BigInteger, "previous_until_us"),
        *_required(sa.Boolean, "replace_due"),
        _reference("user_id", "users.user_id"),
        *_required(sa.BigInteger, "created_at_us", "authenticated_at_us", "last_seen_us"),
        *_required(sa.Text, "network", "browser", "method"),
        sa.Index("sessions_by_digest", "digest", unique=True),
        sa.Index("sessions_by_previous_digest", "previous_digest"),
        sa.Index("sessions_by_user", "user_id", "created_at_us"),
        sa.Index("sessions_by_age", "created_at_us"),
    )
    op.create_table(
        "challenges",
        _id("challenge_id"),
        *_optional(sa.Text, "user_id"),
        *_required(sa.LargeBinary, "challenge"),
        *_required(sa.Text, "origin"),
        *_required(sa.BigInteger, "expires_at_us"),
        sa.Column("kind", sa.Text, nullable=False, server_default="passkey"),
        sa.Index("challenges_by_expiry", "expires_at_us"),
    )
    op.create_table(
        "sign_in_rate_limits",
        _id("name"),
        *_required(sa.BigInteger, "full_at_ns"),
        sa.Index("sign_in_rate_limits_by_time", "full_at_ns"),
    )


def _create_playground_tokens() -> None:
    op.create_table(
        "playground_tokens",
        _id("token_id"),
        *_required(sa.LargeBinary, "digest"),
        *_required(sa.Integer, "pepper_version"),
        _reference("key_id", "api_keys.key_id"),
        _reference("session_id", "sessions.session_id"),
        *_required(sa.BigInteger, "created_at_us", "expires_at_us"),
        sa.Index("playground_tokens_by_session", "session_id", "created_at_us"),
        sa.Index("playground_tokens_by_key", "key_id", "expires_at_us"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit_events",
        sa.Column("event_no", sa.BigInteger, primary_key=True, autoincrement=False),
        *_required(sa.BigInteger, "occurred_at_us"),
        *_required(sa.Text, "action", "user_id", "account_id", "object_id", "session_id", "network", "outcome"),
        *_required(sa.Integer, "pepper_version"),
        *_required(sa.LargeBinary, "previous_code", "code"),
        sa.Index("audit_events_by_account", "account_id", "event_no"),
        sa.Index("audit_events_by_user", "user_id", "event_no"),
        sa.Index("audit_events_by_time", "occurred_at_us"),
    )
    head = op.create_table(
        "audit_head",
        sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
        *_required(sa.BigInteger, "event_no"),
        *_required(sa.LargeBinary, "code"),
        sa.Column("pruned_no", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("pruned_pepper_version", sa.Integer, nullable=False, server_default="0"),
        *_optional(sa.LargeBinary, "pruned_code"),
        sa.CheckConstraint("row_no = 1", name="audit_head_has_one_row"),
    )
    op.bulk_insert(head, [{"row_no": 1, "event_no": 0, "code": b""}])
    op.create_table(
        "recorded_changes",
        _id("change_id"),
        *_required(sa.BigInteger, "recorded_at_us"),
        sa.Index("recorded_changes_by_time", "recorded_at_us"),
    )


def _create_notices() -> None:
    op.create_table(
        "webhooks",
        _id("webhook_id"),
        _reference("account_id", "accounts.account_id"),
        *_required(sa.Text, "url", "secret"),
        *_required(sa.BigInteger, "created_at_us"),
        sa.Index("webhooks_by_account", "account_id", "created_at_us"),
    )
    op.create_table("muted_notices", _id("account_id", "accounts.account_id"), _id("kind"))
    op.create_table(
        "notices",
        _id("notice_id"),
        _reference("account_id", "accounts.account_id"),
        *_required(sa.Text, "kind", "key_id", "body"),
        *_required(sa.BigInteger, "created_at_us"),
        sa.Index("notices_by_account", "account_id", "created_at_us"),
        sa.Index("notices_by_age", "created_at_us"),
    )
    op.create_table(
        "notice_deliveries",
        _id("delivery_id"),
        _reference("notice_id", "notices.notice_id"),
        *_required(sa.Text, "channel", "recipient_id", "state"),
        *_required(sa.Integer, "attempts"),
        *_required(sa.Text, "failure"),
        *_optional(sa.BigInteger, "attempted_at_us"),
        *_required(sa.BigInteger, "next_attempt_at_us"),
        sa.Index("notice_deliveries_by_notice", "notice_id", "delivery_id"),
        sa.Index("notice_deliveries_by_recipient", "state", "recipient_id", "next_attempt_at_us"),
    )
    op.create_table(
        "key_networks",
        _id("key_id"),
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        *_required(sa.Integer, "pepper_version"),
        *_required(sa.BigInteger, "first_used_at_us", "last_used_at_us"),
        sa.Index("key_networks_by_use", "last_used_at_us"),
    )


def _id(name: str, of: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, *([sa.ForeignKey(of)] if of else []), primary_key=True)


def _reference(name: str, to: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, sa.ForeignKey(to), nullable=False)


def _required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]

"""Adds users: how they sign in, their sessions, accounts and invitations, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("created_by", sa.Text, nullable=False, server_default=""))
    op.add_column("api_keys", sa.Column("replaces_key_id", sa.Text))
    op.add_column("api_keys", sa.Column("form_id", sa.Text))
    op.create_index("api_keys_by_form", "api_keys", ["account_id", "form_id"], unique=True)
    _create_people()
    _create_sign_in()
    _create_audit()


def _create_people() -> None:
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("is_operator", sa.Boolean, nullable=False),
        sa.Column("disabled_at_us", sa.BigInteger),
        sa.Column("last_seen_hour_us", sa.BigInteger),
    )
    op.create_index("users_by_age", "users", ["created_at_us", "user_id"])
    op.create_index("users_by_email", "users", ["email"])
    op.create_table(
        "memberships",
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), primary_key=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), primary_key=True),
        sa.Column("role", sa.Integer, nullable=False),
        sa.Column("joined_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("memberships_by_user", "memberships", ["user_id", "joined_at_us"])
    op.create_table(
        "passkeys",
        sa.Column("passkey_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), nullable=False),
        sa.Column("credential_id", sa.LargeBinary, nullable=False),
        sa.Column("credential", sa.LargeBinary, nullable=False),
        sa.Column("sign_count", sa.BigInteger, nullable=False),
        sa.Column("rp_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("is_backed_up", sa.Boolean, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("last_used_hour_us", sa.BigInteger),
    )
    op.create_index("passkeys_by_credential", "passkeys", ["credential_id"], unique=True)
    op.create_index("passkeys_by_user", "passkeys", ["user_id", "created_at_us"])
    op.create_table(
        "invitations",
        sa.Column("invitation_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("role", sa.Integer, nullable=False),
        sa.Column("invited_by", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("invitations_by_digest", "invitations", ["digest"], unique=True)
    op.create_index("invitations_by_account", "invitations", ["account_id", "created_at_us"])


def _create_sign_in() -> None:
    op.create_table(
        "recovery_codes",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("recovery_codes_by_user", "recovery_codes", ["user_id"])
    op.create_table(
        "sign_in_links",
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("sign_in_links_by_digest", "sign_in_links", ["digest"], unique=True)
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("previous_digest", sa.LargeBinary),
        sa.Column("previous_until_us", sa.BigInteger),
        sa.Column("replace_due", sa.Boolean, nullable=False),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("authenticated_at_us", sa.BigInteger, nullable=False),
        sa.Column("last_seen_us", sa.BigInteger, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("browser", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
    )
    op.create_index("sessions_by_digest", "sessions", ["digest"], unique=True)
    op.create_index("sessions_by_previous_digest", "sessions", ["previous_digest"])
    op.create_index("sessions_by_user", "sessions", ["user_id", "created_at_us"])
    op.create_index("sessions_by_age", "sessions", ["created_at_us"])
    op.create_table(
        "challenges",
        sa.Column("challenge_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text),
        sa.Column("challenge", sa.LargeBinary, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("challenges_by_expiry", "challenges", ["expires_at_us"])
    op.create_table(
        "sign_in_rate_limits",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("full_at_ns", sa.BigInteger, nullable=False),
    )
    op.create_index("sign_in_rate_limits_by_time", "sign_in_rate_limits", ["full_at_ns"])


def _create_audit() -> None:
    op.create_table(
        "audit_events",
        sa.Column("event_no", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("occurred_at_us", sa.BigInteger, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("object_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("pepper_version", sa.Integer, nullable=False),
        sa.Column("previous_code", sa.LargeBinary, nullable=False),
        sa.Column("code", sa.LargeBinary, nullable=False),
    )
    op.create_index("audit_events_by_account", "audit_events", ["account_id", "event_no"])
    op.create_index("audit_events_by_user", "audit_events", ["user_id", "event_no"])
    op.create_index("audit_events_by_time", "audit_events", ["occurred_at_us"])
    head = op.create_table(
        "audit_head",
        sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("event_no", sa.BigInteger, nullable=False),
        sa.Column("code", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("row_no = 1", name="audit_head_has_one_row"),
    )
    op.bulk_insert(head, [{"row_no": 1, "event_no": 0, "code": b""}])

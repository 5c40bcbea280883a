"""Adds passwords, authenticator apps and identities of OpenID Connect issuers."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("challenges", sa.Column("kind", sa.Text, nullable=False, server_default="passkey"))
    op.create_index("invitations_by_email", "invitations", ["email", "created_at_us"])
    op.create_table(
        "passwords",
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("set_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "totp",
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), primary_key=True),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("set_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "oidc_identities",
        sa.Column("identity_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), nullable=False),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("last_used_hour_us", sa.BigInteger),
    )
    op.create_index("oidc_identities_by_subject", "oidc_identities", ["issuer", "subject"], unique=True)
    op.create_index("oidc_identities_by_user", "oidc_identities", ["user_id", "created_at_us"])

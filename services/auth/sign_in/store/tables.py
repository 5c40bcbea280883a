"""The tables of signing in, the same in SQLite and PostgreSQL. Times are microseconds since 1970.

The columns of most are the fields of a record: services/auth/sign_in/records.py tells what they mean. Of tokens and
codes only digests are stored, like those of keys: see services/auth/core/peppers.py.
"""

import sqlalchemy as sa

from services.auth.core.store.encrypted import Encrypted
from services.auth.core.store.tables import metadata, of_account, of_user
from services.auth.sign_in.records import Challenge, Invitation, OidcIdentity, Passkey, Password, Totp
from services.chassis.database.records import columns_of

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

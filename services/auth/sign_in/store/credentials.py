"""Stores passwords, authenticator apps and identities of OpenID Connect issuers."""

import sqlalchemy as sa

from services.auth.sign_in.records import OidcIdentity, Password, Totp
from services.auth.sign_in.store.tables import oidc_identities, passwords, totp
from services.chassis.database.records import add, find, find_all


def put_password(connection: sa.Connection, password: Password) -> None:
    """Replaces a user's password. Call it with the user locked, as all that changes something here."""
    connection.execute(passwords.delete().where(passwords.c.user_id == password.user_id))
    add(connection, password)


def remove_password(connection: sa.Connection, user_id: str) -> bool:
    """Removes the password and the authenticator app; returns whether there was either."""
    removed = [
        connection.execute(table.delete().where(table.c.user_id == user_id)).rowcount for table in (passwords, totp)
    ]
    return any(removed)


def put_totp(connection: sa.Connection, app: Totp) -> None:
    connection.execute(totp.delete().where(totp.c.user_id == app.user_id))
    add(connection, app)


def record_totp_step(connection: sa.Connection, user_id: str, step: int) -> bool:
    """Records the use of a code; False if it, or a later one, was used before."""
    is_news = sa.and_(totp.c.user_id == user_id, totp.c.last_step < step)
    return connection.execute(totp.update().where(is_news).values(last_step=step)).rowcount == 1


def find_identity(connection: sa.Connection, issuer: str, subject: str) -> OidcIdentity | None:
    is_it = sa.and_(oidc_identities.c.issuer == issuer, oidc_identities.c.subject == subject)
    return find(connection, OidcIdentity, sa.select(oidc_identities).where(is_it))


def list_identities(connection: sa.Connection, user_id: str) -> list[OidcIdentity]:
    query = sa.select(oidc_identities).where(oidc_identities.c.user_id == user_id)
    order = oidc_identities.c.created_at_us, oidc_identities.c.identity_id
    return find_all(connection, OidcIdentity, query.order_by(*order))


def record_identity_use(connection: sa.Connection, identity_id: str, hour_us: int) -> None:
    is_it = oidc_identities.c.identity_id == identity_id
    connection.execute(oidc_identities.update().where(is_it).values(last_used_hour_us=hour_us))


def remove_identity(connection: sa.Connection, user_id: str, identity_id: str) -> bool:
    is_it = sa.and_(oidc_identities.c.user_id == user_id, oidc_identities.c.identity_id == identity_id)
    return connection.execute(oidc_identities.delete().where(is_it)).rowcount == 1

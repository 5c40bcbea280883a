"""Stores what can be used once: sign-in links, recovery codes, invitations and challenges.

Using one removes its row and returns it in one statement. Of two transactions that do so at the same time, the database
lets one have it.
"""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from services.auth.records.users import Challenge, ChallengeKind, Invitation
from services.auth.store.rows import to_record, values_of
from services.auth.store.user_tables import challenges, invitations, recovery_codes, sign_in_links

_INVITATIONS: Final = (
    sa.select(invitations)
    .where(invitations.c.account_id == sa.bindparam("account_id"), invitations.c.expires_at_us > sa.bindparam("now_us"))
    .order_by(invitations.c.created_at_us, invitations.c.invitation_id)
)


def put_link(connection: sa.Connection, user_id: str, digest: bytes, expires_at_us: int) -> None:
    """Adds a user's sign-in link; an earlier one no longer works. Call it with the user locked."""
    connection.execute(sign_in_links.delete().where(sign_in_links.c.user_id == user_id))
    connection.execute(sign_in_links.insert().values(user_id=user_id, digest=digest, expires_at_us=expires_at_us))


def find_link(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> str | None:
    """Returns the user of a link that still works; lock that user before it is used."""
    is_it = sa.and_(sign_in_links.c.digest.in_(digests), sign_in_links.c.expires_at_us > now_us)
    return connection.execute(sa.select(sign_in_links.c.user_id).where(is_it)).scalar()


def use_link(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> str | None:
    """Returns the user of a link that still works, for the first who asks."""
    is_it = sa.and_(sign_in_links.c.digest.in_(digests), sign_in_links.c.expires_at_us > now_us)
    return connection.execute(sign_in_links.delete().where(is_it).returning(sign_in_links.c.user_id)).scalar()


def remove_link(connection: sa.Connection, user_id: str) -> None:
    connection.execute(sign_in_links.delete().where(sign_in_links.c.user_id == user_id))


def put_recovery_codes(connection: sa.Connection, user_id: str, digests: Sequence[bytes], now_us: int) -> None:
    """Replaces a user's codes. Call it with the user locked."""
    connection.execute(recovery_codes.delete().where(recovery_codes.c.user_id == user_id))
    rows = [{"digest": digest, "user_id": user_id, "created_at_us": now_us} for digest in digests]
    connection.execute(recovery_codes.insert(), rows)


def find_recovery_code(connection: sa.Connection, digests: Sequence[bytes]) -> str | None:
    """Returns the user of a code; lock that user before it is used."""
    return connection.execute(sa.select(recovery_codes.c.user_id).where(recovery_codes.c.digest.in_(digests))).scalar()


def use_recovery_code(connection: sa.Connection, digests: Sequence[bytes]) -> str | None:
    """Returns the user of a code, for the first who asks."""
    used = recovery_codes.delete().where(recovery_codes.c.digest.in_(digests))
    return connection.execute(used.returning(recovery_codes.c.user_id)).scalar()


def add_invitation(connection: sa.Connection, invitation: Invitation, digest: bytes) -> None:
    expired = sa.and_(
        invitations.c.account_id == invitation.account_id, invitations.c.expires_at_us <= invitation.created_at_us
    )
    connection.execute(invitations.delete().where(expired))
    connection.execute(invitations.insert().values(digest=digest, **values_of(invitation)))


def find_invitation(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> Invitation | None:
    is_it = sa.and_(invitations.c.digest.in_(digests), invitations.c.expires_at_us > now_us)
    row = connection.execute(sa.select(invitations).where(is_it)).one_or_none()
    return None if row is None else to_record(Invitation, row)


def use_invitation(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> Invitation | None:
    """Returns an invitation that still works, for the first who asks."""
    is_it = sa.and_(invitations.c.digest.in_(digests), invitations.c.expires_at_us > now_us)
    row = connection.execute(invitations.delete().where(is_it).returning(*invitations.c)).one_or_none()
    return None if row is None else to_record(Invitation, row)


def use_newest_invitation_for(connection: sa.Connection, email: str, now_us: int) -> Invitation | None:
    """Returns the newest invitation for an email address, for the first who asks."""
    query = sa.select(invitations.c.digest).where(invitations.c.email == email, invitations.c.expires_at_us > now_us)
    newest = query.order_by(invitations.c.created_at_us.desc(), invitations.c.invitation_id).limit(1)
    digest = connection.execute(newest).scalar()
    return None if digest is None else use_invitation(connection, [digest], now_us)


def list_invitations(connection: sa.Connection, account_id: str, now_us: int) -> list[Invitation]:
    return [
        to_record(Invitation, row)
        for row in connection.execute(_INVITATIONS, {"account_id": account_id, "now_us": now_us})
    ]


def cancel_invitations(connection: sa.Connection, account_id: str, *conditions: sa.ColumnElement[bool]) -> list[str]:
    query = invitations.delete().where(invitations.c.account_id == account_id, *conditions)
    return list(connection.execute(query.returning(invitations.c.invitation_id)).scalars())


def cancel_invitation(connection: sa.Connection, account_id: str, invitation_id: str) -> bool:
    return bool(cancel_invitations(connection, account_id, invitations.c.invitation_id == invitation_id))


def cancel_invitations_by(connection: sa.Connection, account_id: str, user_id: str) -> list[str]:
    """Cancels what a user has invited others with."""
    return cancel_invitations(connection, account_id, invitations.c.invited_by == user_id)


def add_challenge(connection: sa.Connection, challenge: Challenge, now_us: int) -> None:
    connection.execute(challenges.delete().where(challenges.c.expires_at_us <= now_us))
    connection.execute(challenges.insert().values(**values_of(challenge)))


def find_challenge(
    connection: sa.Connection, challenge_id: str, now_us: int, kind: ChallengeKind = ChallengeKind.PASSKEY
) -> Challenge | None:
    row = connection.execute(sa.select(challenges).where(*_is_challenge(challenge_id, now_us, kind))).one_or_none()
    return None if row is None else to_record(Challenge, row)


def find_challenge_in(
    connection: sa.Connection, user_id: str, origin: str, now_us: int, kind: ChallengeKind
) -> Challenge | None:
    """Returns the challenge that a user was given there, if there is one."""
    query = sa.select(challenges).where(
        challenges.c.user_id == user_id,
        challenges.c.origin == origin,
        challenges.c.expires_at_us > now_us,
        challenges.c.kind == kind,
    )
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else to_record(Challenge, row)


def use_challenge(
    connection: sa.Connection, challenge_id: str, now_us: int, kind: ChallengeKind = ChallengeKind.PASSKEY
) -> Challenge | None:
    """Returns a challenge, for the first who asks."""
    used = challenges.delete().where(*_is_challenge(challenge_id, now_us, kind)).returning(*challenges.c)
    row = connection.execute(used).one_or_none()
    return None if row is None else to_record(Challenge, row)


def remove_challenges(connection: sa.Connection, user_id: str, kind: ChallengeKind) -> None:
    connection.execute(challenges.delete().where(challenges.c.user_id == user_id, challenges.c.kind == kind))


def _is_challenge(challenge_id: str, now_us: int, kind: ChallengeKind) -> list[sa.ColumnElement[bool]]:
    return [
        challenges.c.challenge_id == challenge_id,
        challenges.c.expires_at_us > now_us,
        challenges.c.kind == kind,
    ]

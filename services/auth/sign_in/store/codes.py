"""Stores what can be used once: sign-in links, recovery codes, invitations and challenges.

Using one removes its row and returns it in one statement. Of two transactions that do so at the same time, the database
lets one have it.
"""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.core.records.users import User
from services.auth.sign_in.records import Challenge, ChallengeKind, Invitation
from services.auth.sign_in.store.tables import challenges, invitations, recovery_codes, sign_in_links
from services.chassis.database.records import add, find, find_all, get, take

# Begins the id of a recovery code, which ends with a part of its digest.
RECOVERY_CODE: Final = "recovery_"
Conditions = Sequence[sa.ColumnElement[bool]]


def put_link(connection: sa.Connection, user_id: str, digest: bytes, expires_at_us: int) -> None:
    """Adds a user's sign-in link; an earlier one no longer works. Call it with the user locked."""
    remove_link(connection, user_id)
    connection.execute(sign_in_links.insert().values(user_id=user_id, digest=digest, expires_at_us=expires_at_us))


def use_link(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> str | None:
    """Returns the user of a link that still works, one that was mailed or not, for the first who asks."""
    mailed = challenges.c.challenge_id.in_([digest.hex() for digest in digests])
    is_mailed = mailed, challenges.c.expires_at_us > now_us, challenges.c.kind == ChallengeKind.MAILED_LINK
    given = _use(connection, sign_in_links, _is_valid(sign_in_links, digests, now_us))
    used = given or _use(connection, challenges, is_mailed)
    return None if used is None else str(used.user_id)


def remove_link(connection: sa.Connection, user_id: str) -> None:
    connection.execute(sign_in_links.delete().where(sign_in_links.c.user_id == user_id))


def put_recovery_codes(connection: sa.Connection, user_id: str, digests: Sequence[bytes], now_us: int) -> None:
    """Replaces a user's codes. Call it with the user locked."""
    connection.execute(recovery_codes.delete().where(recovery_codes.c.user_id == user_id))
    rows = [{"digest": digest, "user_id": user_id, "created_at_us": now_us} for digest in digests]
    connection.execute(recovery_codes.insert(), rows)


def use_recovery_code(connection: sa.Connection, digests: Sequence[bytes]) -> tuple[str, str] | None:
    """Returns the user of a code, and an id of the code, for the first who asks."""
    used = _use(connection, recovery_codes, [recovery_codes.c.digest.in_(digests)])
    return None if used is None else (used.user_id, RECOVERY_CODE + used.digest[:8].hex())


def remove_recovery_code(connection: sa.Connection, code_id: str) -> None:
    """Removes the code with such an id, if there is one."""
    start = bytes.fromhex(code_id.removeprefix(RECOVERY_CODE))
    is_it = recovery_codes.c.digest.between(start, start + b"\xff" * 32)
    connection.execute(recovery_codes.delete().where(is_it))


def _use(connection: sa.Connection, table: sa.Table, is_it: Conditions) -> Any | None:
    """Returns the row of what proves who a user is. The user is locked before, as by all that changes theirs."""
    user_id = connection.scalar(sa.select(table.c.user_id).where(*is_it))
    if user_id is None or get(connection, User, user_id, locks=True) is None:
        return None
    return connection.execute(table.delete().where(*is_it).returning(*table.c)).first()


def add_invitation(connection: sa.Connection, invitation: Invitation, digest: bytes) -> None:
    expired = sa.and_(
        invitations.c.account_id == invitation.account_id, invitations.c.expires_at_us <= invitation.created_at_us
    )
    connection.execute(invitations.delete().where(expired))
    add(connection, invitation, digest=digest)


def find_invitation(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> Invitation | None:
    return find(connection, Invitation, sa.select(invitations).where(*_is_valid(invitations, digests, now_us)))


def use_invitation(connection: sa.Connection, digests: Sequence[bytes], now_us: int) -> Invitation | None:
    """Returns an invitation that still works, for the first who asks."""
    return take(connection, Invitation, *_is_valid(invitations, digests, now_us))


def use_newest_invitation_for(connection: sa.Connection, email: str, now_us: int) -> Invitation | None:
    """Returns the newest invitation for an email address, for the first who asks."""
    query = sa.select(invitations.c.digest).where(invitations.c.email == email, invitations.c.expires_at_us > now_us)
    newest = query.order_by(invitations.c.created_at_us.desc(), invitations.c.invitation_id).limit(1)
    digest = connection.execute(newest).scalar()
    return None if digest is None else use_invitation(connection, [digest], now_us)


def list_invitations(connection: sa.Connection, account_id: str, now_us: int) -> list[Invitation]:
    query = sa.select(invitations).where(invitations.c.account_id == account_id, invitations.c.expires_at_us > now_us)
    return find_all(connection, Invitation, query.order_by(invitations.c.created_at_us, invitations.c.invitation_id))


def cancel_invitations(connection: sa.Connection, account_id: str, **of: str) -> int:
    """Cancels invitations of an account whose columns have these values; returns how many."""
    return connection.execute(invitations.delete().filter_by(account_id=account_id, **of)).rowcount


def add_challenge(connection: sa.Connection, challenge: Challenge, now_us: int) -> None:
    connection.execute(challenges.delete().where(challenges.c.expires_at_us <= now_us))
    add(connection, challenge)


def find_challenge(
    connection: sa.Connection, challenge_id: str, now_us: int, kind: ChallengeKind = ChallengeKind.PASSKEY
) -> Challenge | None:
    return find(connection, Challenge, sa.select(challenges).where(*_is_challenge(challenge_id, now_us, kind)))


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
    return find(connection, Challenge, query.limit(1))


def use_challenge(
    connection: sa.Connection, challenge_id: str, now_us: int, kind: ChallengeKind = ChallengeKind.PASSKEY
) -> Challenge | None:
    """Returns a challenge, for the first who asks."""
    return take(connection, Challenge, *_is_challenge(challenge_id, now_us, kind))


def remove_challenges(connection: sa.Connection, user_id: str, kind: ChallengeKind) -> None:
    connection.execute(challenges.delete().where(challenges.c.user_id == user_id, challenges.c.kind == kind))


def _is_valid(table: sa.Table, digests: Sequence[bytes], now_us: int) -> Conditions:
    return table.c.digest.in_(digests), table.c.expires_at_us > now_us


def _is_challenge(challenge_id: str, now_us: int, kind: ChallengeKind) -> Conditions:
    columns = challenges.c
    return columns.challenge_id == challenge_id, columns.expires_at_us > now_us, columns.kind == kind

"""Counts how users can sign in."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from services.auth.core.records.users import User
from services.auth.sign_in.records import UserSummary
from services.auth.sign_in.store.tables import oidc_identities, passkeys, passwords, recovery_codes, totp

# Of UserSummary, in its order. A password counts with its authenticator app.
_WAYS: Final = (
    passkeys,
    recovery_codes,
    sa.select(passwords.c.user_id).join(totp, totp.c.user_id == passwords.c.user_id).subquery(),
    oidc_identities,
)


def summarise(connection: sa.Connection, found: Sequence[User]) -> list[UserSummary]:
    """Counts how each of them can sign in."""
    user_ids = [user.user_id for user in found]
    counting = (
        sa.select(sa.literal(number), way.c.user_id, sa.func.count())
        .where(way.c.user_id.in_(user_ids))
        .group_by(way.c.user_id)
        for number, way in enumerate(_WAYS)
    )
    counts = {(row[0], row[1]): row[2] for row in connection.execute(sa.union_all(*counting))}
    return [
        UserSummary(user, *(counts.get((number, user.user_id), 0) for number in range(len(_WAYS)))) for user in found
    ]

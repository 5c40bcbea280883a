"""Deletes expired claims that no request took over."""

from typing import Any, Final

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.claims import CLAIM_LIFE_US
from services.metering.store.tables import claims

_OLDEST: Final = (
    sa.select(claims.c.account_id, claims.c.key_digest)
    .where(claims.c.claimed_at_us < sa.bindparam("claimed_before_us"))
    .order_by(claims.c.claimed_at_us)
    .limit(sa.bindparam("most"))
    # Rows that a batch is taking over are skipped: waiting for them might deadlock with it.
    .with_for_update(skip_locked=True)
)
# Built once: SQLAlchemy's tuple is a reference cycle, which would leave work for the garbage collector every second.
_FORGET: Final = sa.delete(claims).where(sa.tuple_(claims.c.account_id, claims.c.key_digest).in_(_OLDEST))


def forget_claims(connection: sa.Connection, most: int) -> int:
    """Deletes the oldest first; returns how many."""
    values = {"claimed_before_us": read_now_us(connection) - CLAIM_LIFE_US, "most": most}
    forgotten: sa.CursorResult[Any] = connection.execute(_FORGET, values)
    return forgotten.rowcount

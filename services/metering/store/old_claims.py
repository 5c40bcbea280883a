"""Claims whose time is over, and which nobody took over."""

from typing import Any

import sqlalchemy as sa

from services.metering.claims import CLAIM_LIFE_US
from services.metering.store.clock import read_now_us
from services.metering.store.tables import claims


def forget_claims(connection: sa.Connection, most: int) -> int:
    """The oldest first; says how many it forgot."""
    key = sa.tuple_(claims.c.account_id, claims.c.key_digest)
    oldest = (
        sa.select(claims.c.account_id, claims.c.key_digest)
        .where(claims.c.claimed_at_us < read_now_us(connection) - CLAIM_LIFE_US)
        .order_by(claims.c.claimed_at_us)
        .limit(most)
        # What a batch is about to take over is not waited for: the batch may wait for what is locked here.
        .with_for_update(skip_locked=True)
    )
    forgotten: sa.CursorResult[Any] = connection.execute(sa.delete(claims).where(key.in_(oldest)))
    return forgotten.rowcount

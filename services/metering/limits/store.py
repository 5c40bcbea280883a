"""Routers' shares of the limits of models, in the database."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.database.clock import read_now_us
from services.chassis.database.records import columns_of, find_all
from services.metering.credit.records import DAY_US
from services.metering.limits.model_shares import ModelShare, ShareClaim, ShareHolder, is_contended, renew
from services.metering.store.schema import metadata

model_shares = sa.Table("model_shares", metadata, *columns_of(ModelShare, "limit_name", "holder_id"))

# Not waited for: the writer has chats to hold credit for.
_LOCK: Final = sa.text("SELECT pg_try_advisory_xact_lock(hashtext('legato:metering:model_shares'))")


class RenewedShare(ModelShare, frozen=True):
    """A share with what the other routers' shares say."""

    is_contended: bool = False
    # Routers that call for this limit.
    callers: int = 1


def renew_shares(
    connection: sa.Connection, holder: ShareHolder, claims: Sequence[ShareClaim], kept_us: int
) -> list[RenewedShare] | None:
    """Leases a router its shares; returns None if another replica does so for another router right now."""
    if connection.dialect.name == "postgresql" and not connection.execute(_LOCK).scalar_one():
        return None
    now_us = read_now_us(connection)
    names = [claim.limit_name for claim in claims]
    found = find_all(connection, ModelShare, sa.select(model_shares).where(model_shares.c.limit_name.in_(names)))
    renewed, after = [], []
    for claim in claims:
        rows = [row for row in found if row.limit_name == claim.limit_name]
        own, rows = renew(rows, holder, claim, now_us, kept_us)
        callers = sum(row.is_live(now_us) for row in rows)
        renewed.append(RenewedShare(**asdict(own), is_contended=is_contended(rows, now_us), callers=callers))
        after += rows
    gone = [(row.limit_name, row.holder_id) for row in found if row not in after]
    if gone:
        is_gone = sa.tuple_(model_shares.c.limit_name, model_shares.c.holder_id).in_(gone)
        connection.execute(sa.delete(model_shares).where(is_gone))
    if added := [asdict(row) for row in after if row not in found]:
        connection.execute(sa.insert(model_shares), added)
    if holder.sequence == 1:
        # Of limits that no routes have any more.
        connection.execute(sa.delete(model_shares).where(model_shares.c.kept_until_us < now_us - DAY_US))
    return renewed

"""Stores the versions of the price list. A version never changes; the newest of those that are effective is valid."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import astuple

from services.chassis.database.clock import read_now_us
from services.metering.credit.prices import Price, PriceFile, Prices, ScheduledPrices, ScheduledVersion
from services.metering.credit.store.tables import price_versions, prices

_SCHEDULE: Final = sa.select(price_versions.c.effective_from_us, price_versions.c.version)
_VERSION: Final = (
    sa.select(prices)
    .where(prices.c.version == sa.bindparam("version"))
    .order_by(prices.c.output_nanos_per_million, prices.c.class_id)
)


class PriceList(NamedTuple):
    current_version: int
    # All versions, the newest first.
    versions: dict[ScheduledVersion, Mapping[str, Price]]


def adopt_prices(
    connection: sa.Connection,
    wanted: Mapping[str, Price],
    scheduled: Sequence[ScheduledPrices] = (),
    notice_us: int = 0,
) -> Prices:
    """Makes the prices of a file those of the database, now and at each time that is scheduled, and returns them.

    Where the database has other prices, a new version replaces them from then on. Earlier versions stay. With a notice,
    the new version is valid only after it, so that all replicas know it by then and change at the same time.
    """
    if connection.dialect.name != "sqlite":
        # Replicas that start at the same time take turns, so that they agree on one new version.
        connection.exec_driver_sql("LOCK TABLE price_versions IN EXCLUSIVE MODE")
    file = PriceFile(wanted, tuple(scheduled))
    found = _read_schedule(connection)
    now_us = read_now_us(connection) + (notice_us if found else 0)
    newest = max((each.version for each in found), default=0)
    times_us = {each.valid_from_us for each in scheduled} | {each.effective_from_us for each in found}
    for time_us in (now_us, *sorted(each for each in times_us if each > now_us)):
        meant = file.valid_at(time_us)
        version = _version_at(found, time_us)
        if version is None or read_version(connection, version) != meant:
            newest += 1
            connection.execute(sa.insert(price_versions).values(version=newest, effective_from_us=time_us))
            rows = [(newest, class_id, *astuple(price)) for class_id, price in meant.items()]
            connection.execute(sa.insert(prices), [dict(zip(prices.c.keys(), row, strict=True)) for row in rows])
            found = sorted([*found, ScheduledVersion(time_us, newest)])
    return read_schedule(connection)


def read_schedule(connection: sa.Connection) -> Prices:
    """Reads the valid version, and those that will replace it."""
    now_us = read_now_us(connection)
    found = _read_schedule(connection)
    current = _version_at(found, now_us)
    if current is None:
        raise LookupError("there are no prices")
    coming = [each for each in found if each.effective_from_us > now_us]
    versions = [current, *(each.version for each in coming)]
    return Prices(current, {version: read_version(connection, version) for version in versions}, coming)


def open_prices(connection: sa.Connection, file: PriceFile, shares: bool) -> Prices:
    """Returns the prices to start with: those of the file, or of the database where replicas share it, which have to
    agree on a file first."""
    if shares and _read_schedule(connection):
        return read_schedule(connection)
    return adopt_prices(connection, file.current, file.scheduled)


def read_price_list(connection: sa.Connection) -> PriceList:
    versions = sorted(_read_schedule(connection), key=lambda each: each.version, reverse=True)
    return PriceList(
        read_schedule(connection).current_version,
        {each: read_version(connection, each.version) for each in versions},
    )


def read_version(connection: sa.Connection, version: int) -> dict[str, Price]:
    rows = connection.execute(_VERSION, {"version": version}).all()
    return {class_id: Price(*amounts) for _, class_id, *amounts in rows}


def _read_schedule(connection: sa.Connection) -> list[ScheduledVersion]:
    """Returns all versions; of those with the same time, the last is the valid one."""
    return sorted(ScheduledVersion(*row) for row in connection.execute(_SCHEDULE))


def _version_at(found: Sequence[ScheduledVersion], time_us: int) -> int | None:
    position = bisect_right(found, time_us, key=lambda each: each.effective_from_us)
    return found[position - 1].version if position else None

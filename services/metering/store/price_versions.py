"""Stores versions of the price table: each is written once and kept for as long as the ledger."""

from collections.abc import Mapping

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.prices import Price, Prices
from services.metering.store.tables import price_versions, prices


def adopt_prices(connection: sa.Connection, wanted: Mapping[str, Price]) -> Prices:
    """Returns the prices for new requests: a new version if they differ from the newest."""
    if connection.dialect.name != "sqlite":
        # Replicas that start at the same time take turns, so that they agree on one new version.
        connection.exec_driver_sql("LOCK TABLE price_versions IN EXCLUSIVE MODE")
    newest: int = connection.execute(sa.select(sa.func.coalesce(sa.func.max(price_versions.c.version), 0))).scalar_one()
    version = newest
    if not newest or read_version(connection, newest) != wanted:
        version = newest + 1
        connection.execute(sa.insert(price_versions).values(version=version, effective_from_us=read_now_us(connection)))
        connection.execute(sa.insert(prices), [_to_row(version, *item) for item in wanted.items()])
    return Prices(version, {version: wanted})


def read_version(connection: sa.Connection, version: int) -> dict[str, Price]:
    rows = connection.execute(sa.select(prices).where(prices.c.version == version))
    return {class_id: Price(*amounts) for _, class_id, *amounts in rows}


def _to_row(version: int, class_id: str, price: Price) -> dict[str, int | str]:
    return {
        "version": version,
        "class_id": class_id,
        "input_nanos_per_million": price.input_nanos,
        "cached_input_nanos_per_million": price.cached_input_nanos,
        "output_nanos_per_million": price.output_nanos,
    }

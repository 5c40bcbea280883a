"""Versions of the price list, now and in the future."""

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.metering.credit.prices import Price, Prices, ScheduledPrices
from services.metering.credit.records import HOUR_US
from services.metering.credit.store.prices import adopt_prices, read_schedule
from tests.services.metering.samples import PRICES

DEARER = {**PRICES, "forte": Price(4_000_000, 4_000_000, 20_000_000)}
CHEAPER = {**PRICES, "forte": Price(1_000_000, 1_000_000, 5_000_000)}


def adopt(database: Database, *scheduled: ScheduledPrices) -> Prices:
    with database.transaction(writes=True) as connection:
        return adopt_prices(connection, PRICES, scheduled)


def in_hours(database: Database, hours: int) -> int:
    with database.transaction(writes=False) as connection:
        return read_now_us(connection) + hours * HOUR_US


def forte_at(prices: Prices, now_us: int) -> Price:
    return prices.of_version(prices.version_at(now_us), "forte")


def test_a_scheduled_list_is_stored_ahead_and_only_once(database: Database) -> None:
    soon_us, later_us = in_hours(database, 1), in_hours(database, 2)
    scheduled = (ScheduledPrices(soon_us, DEARER), ScheduledPrices(later_us, CHEAPER))
    adopt(database, *scheduled)
    prices = adopt(database, *scheduled)
    assert prices.current_version == 1
    assert prices.version_at(later_us) == 3
    assert forte_at(prices, soon_us - 1) == PRICES["forte"]
    assert forte_at(prices, soon_us) == DEARER["forte"]
    assert forte_at(prices, later_us) == CHEAPER["forte"]
    with database.transaction(writes=False) as connection:
        assert forte_at(read_schedule(connection), soon_us) == DEARER["forte"]


def test_a_list_that_is_no_longer_scheduled_never_becomes_valid(database: Database) -> None:
    soon_us = in_hours(database, 1)
    adopt(database, ScheduledPrices(soon_us, DEARER))
    assert forte_at(adopt(database), soon_us) == PRICES["forte"]


def test_a_list_whose_time_has_come_is_valid_at_once(database: Database) -> None:
    prices = adopt(database, ScheduledPrices(in_hours(database, -1), DEARER))
    assert forte_at(prices, in_hours(database, 0)) == DEARER["forte"]

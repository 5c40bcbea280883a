"""Recounts the counters of spend limits: when metering starts, and when an operator asks."""

from typing import NamedTuple

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.credit.store.spends import find_miscounted, list_limited_accounts, recount


class Recounted(NamedTuple):
    accounts: int
    # Of these, how many had wrong counters.
    corrected_accounts: int


async def recount_spends(database: Database, log: Log) -> Recounted:
    """Compares first, so that only accounts with wrong counters are locked."""
    account_ids = await database.read(list_limited_accounts)
    corrected = 0
    for account_id in account_ids:
        if await database.read(find_miscounted, account_id):
            spends = await database.write(recount, account_id)
            log.warning("spends.recounted", account_id=account_id)
            corrected += spends > 0
    return Recounted(len(account_ids), corrected)


async def recount_at_start(database: Database, log: Log) -> None:
    """Recounts spends while metering serves. A failure is logged, and the audit reports what was not corrected."""
    try:
        await recount_spends(database, log)
    except Exception as error:
        log.failure("spends.not_recounted", error)

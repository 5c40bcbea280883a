"""Audits the books from their rows alone. Each violation is one line."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from services.chassis.database.database import Database
from services.metering.store import checks

# The first ones are what a reader needs.
LINES_MOST: Final = 1000

# Each check, and the message for a row that it returns.
_CHECKS: Final[tuple[tuple[Any, str], ...]] = (
    (checks.UNCOVERED_ACCOUNTS, "account {0}: holds {2} nanos of a balance of {1}"),
    (checks.BALANCES_AGAINST_LEDGER, "account {0}: balance is {1:+} nanos off the sum of its ledger"),
    (checks.HELD_AGAINST_HOLDS, "account {0}: held credit is {1:+} nanos off the sum of its live holds"),
    (checks.UNBALANCED_ENTRIES, "{0} of {1}: its legs sum to {2} nanos, not to zero"),
    (checks.REPEATED_ENTRIES, "{0} of {1}: booked {2} times"),
    (checks.REPEATED_COUNTS, "request {0}: counted {1} times"),
    (checks.HOLDS_AGAINST_LEDGER, "request {0}: its hold is {1:+} nanos off its charges, {2:+} off its losses"),
    (checks.ENTRIES_ON_OTHER_TERMS, "{0} of {1}: not by the account, key, class and prices of its hold"),
    (checks.CHARGED_VOIDS, "request {0}: charged, though its hold is {1}"),
    (checks.UNBOOKED_SETTLEMENTS, "request {0}: settled, though nothing was booked"),
    (checks.CLAIMS_WITHOUT_HOLDS, "account {0}: request {1} has an Idempotency-Key of it, but no hold"),
    (checks.COUNTERS_AGAINST_LEDGER, "usage of account {0}, key {1}, class {2}, hour {3}: differs from its charges"),
    (checks.OVERCHARGED_REQUESTS, "request {0}: charged {1} nanos more than it cost"),
    (checks.ENTRIES_WITHOUT_PRICE, "{0} of {1}: by a price of class {2} in version {3}, which does not exist"),
    (checks.WRONG_COSTS, "request {0}: booked at {1} nanos, its tokens cost {2}"),
)


async def audit(database: Database) -> list[str]:
    """Audits one snapshot, so that concurrent writes do not look like violations."""
    return await database.read(find_violations)


def find_violations(connection: Any) -> list[str]:
    checks.expect_full_tables(connection)
    return list(islice(_violations(connection), LINES_MOST))


def _violations(connection: Any) -> Iterator[str]:
    for check, line in _CHECKS:
        for row in checks.stream(connection, check):
            yield line.format(*row)

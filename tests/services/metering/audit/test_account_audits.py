"""Audits of single accounts: shared by callers, told again, and repeated only as often as the machine can bear."""

import asyncio
import threading
from typing import Any

import pytest

from services.chassis.database.database import Database
from services.metering.audit import account_audits
from services.metering.audit.account_audits import REST_FACTOR, VALID_FOR_S, AccountAudits
from services.metering.credit.batch import Writer
from services.metering.statements.rules import StatementQuery
from tests.services.metering.reading import list_entries
from tests.services.metering.samples import ACCOUNT, adjust, ask, reserve
from tests.services.metering.statements.test_rules import Calendar, calendar, fill, hasty
from tests.support.fakes import FakeClock

__all__ = ["calendar", "hasty"]

WAIT_S = 60.0
EVERYTHING = StatementQuery(ACCOUNT, None, None, newest_first=False, size=1_000, position=None)


class Looks:
    """Counts audits, and holds them back while it is told to."""

    def __init__(self, clock: FakeClock, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.takes_s = 1.0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._clock, self._look = clock, account_audits._look
        patch.setattr(account_audits, "_look", self.look)

    def look(self, connection: Any, account_id: str) -> Any:
        self.count += 1
        assert self.may_go_on.wait(60)
        self._clock.advance(self.takes_s)
        return self._look(connection, account_id)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def looks(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(clock, monkeypatch)


async def test_an_audit_sums_up_the_ledger_of_the_account(
    database: Database,
    hasty: Writer,
    calendar: Calendar,
) -> None:
    await fill(hasty, calendar, seed=3)
    await ask(hasty, reserve(500))
    entries = (await list_entries(database, EVERYTHING)).entries
    audits = AccountAudits(database)
    found = (await audits.audit(ACCOUNT)).found
    assert found is not None
    assert found[:3] == ([], len(entries), entries[-1].balance_nanos)
    unknown = (await audits.audit("acct_unknown")).found
    assert unknown is not None
    assert unknown[:3] == ([], 0, 0)


async def test_a_caller_that_does_not_wait_is_told_that_it_runs_and_gets_the_same_audit_later(
    database: Database, clock: FakeClock, looks: Looks
) -> None:
    audits = AccountAudits(database, clock)
    looks.may_go_on.clear()
    for _ in range(3):
        assert (await audits.audit(ACCOUNT, 0.001)).found is None
    looks.may_go_on.set()
    first, second = await asyncio.gather(audits.audit(ACCOUNT), audits.audit(ACCOUNT, 60.0))
    assert first.found is not None
    assert first.found == second.found
    assert looks.count == 1


async def test_an_audit_is_repeated_only_for_new_entries_and_after_a_rest(
    database: Database,
    hasty: Writer,
    calendar: Calendar,
    clock: FakeClock,
    looks: Looks,
) -> None:
    await fill(hasty, calendar, seed=3, steps=3)
    audits = AccountAudits(database, clock)
    await audits.audit(ACCOUNT, WAIT_S)
    clock.advance(REST_FACTOR * looks.takes_s)
    await audits.audit(ACCOUNT, WAIT_S)
    assert looks.count == 1
    await ask(hasty, adjust(7, adjustment_id="another"))
    await audits.audit(ACCOUNT, WAIT_S)
    assert looks.count == 2
    await ask(hasty, adjust(7, adjustment_id="one more"))
    clock.advance(REST_FACTOR * looks.takes_s - 0.5)
    await audits.audit(ACCOUNT, WAIT_S)
    assert looks.count == 2
    clock.advance(VALID_FOR_S)
    await audits.audit(ACCOUNT, WAIT_S)
    assert looks.count == 3
    await audits.audit(ACCOUNT)
    assert looks.count == 4


async def test_an_audit_that_failed_is_run_again(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    audits = AccountAudits(database, clock)
    with monkeypatch.context() as patch:
        patch.setattr(account_audits, "_look", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await audits.audit(ACCOUNT)
    assert (await audits.audit(ACCOUNT)).found is not None

"""Versions of files that the processes of a fleet have read."""

import pytest

from services.chassis.database.database import Database
from services.metering.credit.store import staged_files
from services.metering.credit.store.staged_files import PRICES, ROUTES, report_version


async def report(database: Database, process_id: str, version: str, file: str = ROUTES) -> bool:
    return await database.write(report_version, file, process_id, version)


async def test_version_is_agreed_once_every_process_has_read_it(database: Database) -> None:
    assert await report(database, "a", "v1")
    assert await report(database, "b", "v1")
    assert not await report(database, "a", "v2")
    assert not await report(database, "a", "v2")
    # Other files are none of its business.
    assert await report(database, "c", "v1", PRICES)
    assert await report(database, "b", "v2")
    assert await report(database, "a", "v2")


async def test_process_whose_file_has_a_mistake_keeps_all_from_it(database: Database) -> None:
    assert not await report(database, "a", "")
    assert not await report(database, "b", "v1")
    assert await report(database, "a", "v1")


async def test_process_that_has_ended_is_forgotten(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(staged_files, "KEPT_US", 0)
        await report(database, "ended", "v1")
    assert await report(database, "a", "v2")

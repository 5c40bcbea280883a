from functools import partial

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.audit.auditor import audit, find_violations
from services.metering.credit.batch import Writer
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import ask_each, grant, model_call, reserve, settle


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("UPDATE usage_days SET charged_nanos = charged_nanos + 1 WHERE provider = 'acme'", "provider 'acme'"),
        ("UPDATE usage_days SET granted_nanos = 0 WHERE granted_nanos > 0", "class ''"),
        ("UPDATE usage_days SET cost_nanos = cost_nanos - 1 WHERE provider = 'acme'", "provider 'acme'"),
        ("UPDATE usage_days SET provider = 'other' WHERE provider = 'acme'", "provider 'other'"),
        ("DELETE FROM usage_days WHERE provider = 'blau'", "provider 'blau'"),
        ("UPDATE holds SET model_calls = NULL", "provider ''"),
    ],
)
async def test_audit_finds_sums_that_differ(database: Database, writer: Writer, change: str, line: str) -> None:
    for number, provider in enumerate(("acme", "blau"), start=1):
        await ask_each(
            writer, grant(1_000, grant_id=f"g{number}"), reserve(number),
            settle(number, completion=number, calls=[model_call(provider)]),
        )  # fmt: skip
    sum_up(database)
    assert await audit(database) == []
    with database.transaction(writes=True) as connection:
        connection.execute(sa.text(change))
    violations = await audit(database)
    assert violations
    assert any(line in violation for violation in violations), violations
    # Metering's own audits look at what was summed up since yesterday.
    assert await database.read(partial(find_violations, only_recent_sums=True)) == violations

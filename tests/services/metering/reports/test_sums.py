import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.reports.sums import ReportSums
from tests.services.metering.reports.test_models import AT_ONCE_US, report
from tests.services.metering.samples import ask_each, grant, model_call, reserve, settle


async def test_entries_are_summed_up_once_and_only_when_no_earlier_one_can_follow(
    database: Database, writer: Writer, log: Log
) -> None:
    await ask_each(writer, grant(1_000), reserve(1), settle(1, completion=3, calls=[model_call()]))
    sums, again = ReportSums(database, log, pause_s=0), ReportSums(database, log, pause_s=0)
    await sums.sum_up()
    assert count_rows(database) == 0
    await sums.sum_up(AT_ONCE_US)
    await again.sum_up(AT_ONCE_US)
    assert count_rows(database) == 2
    assert report(database).total["charged_nanos"] == 30


def count_rows(database: Database) -> int:
    with database.transaction(writes=False) as connection:
        return int(
            connection.scalar(sa.text("SELECT count(*) FROM usage_days WHERE span = 'day' AND key_id = ''")) or 0
        )

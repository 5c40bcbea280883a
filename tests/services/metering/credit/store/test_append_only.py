import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from tests.services.metering.samples import ask_each, grant, reserve, settle


@pytest.mark.parametrize("table", ["ledger", "prices", "price_versions"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET {} = 1", "TRUNCATE {} CASCADE"])
async def test_what_was_booked_cannot_be_changed(database: Database, writer: Writer, table: str, change: str) -> None:
    await ask_each(writer, grant(1_000), reserve(1), settle(1, completion=3))
    if database.is_sqlite and change.startswith("TRUNCATE"):
        change = "DELETE FROM {} WHERE true"
    column = "customer_nanos" if table == "ledger" else "version"
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), database.transaction(writes=True) as connection:
        connection.exec_driver_sql(change.format(table, column))


@pytest.mark.parametrize(
    "row",
    [
        "INSERT INTO accounts (account_id, balance_nanos, held_nanos) VALUES ('a', 10, 11)",
        "INSERT INTO accounts (account_id, balance_nanos, held_nanos) VALUES ('a', 10, -1)",
        "INSERT INTO accounts (account_id, balance_nanos, held_nanos) VALUES ('a', -1, 0)",
    ],
)
def test_account_that_is_not_covered_cannot_be_written(database: Database, row: str) -> None:
    with pytest.raises(sa.exc.IntegrityError), database.transaction(writes=True) as connection:
        connection.exec_driver_sql(row)

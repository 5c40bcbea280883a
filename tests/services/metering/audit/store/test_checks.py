from pathlib import Path

import sqlalchemy as sa

from services.chassis.database.database import Database, open_database
from services.metering.audit.auditor import CHECKS
from services.metering.audit.store.checks import ALL_ROWS, AUDIT_PAGES_KIB, expect_full_tables, few_pages, read_scope
from services.metering.service import MIGRATIONS


def test_no_table_is_read_once_for_each_row_of_another_though_postgresql_takes_them_for_empty(
    postgres_url: str,
) -> None:
    database = Database(postgres_url, "metering")
    database.migrate(MIGRATIONS)
    with database.transaction(writes=False) as connection:
        expect_full_tables(connection)
        for check, _ in CHECKS:
            query = check(ALL_ROWS).params(read_scope(connection).parameters)
            text = str(query.compile(connection, compile_kwargs={"literal_binds": True})).replace("%%", "%")
            plan = connection.scalars(sa.text(f"EXPLAIN {text}"))
            assert [line for line in plan if "Nested Loop" in line] == []
    database.close()
    assert len(CHECKS) >= 15


def test_few_pages_are_kept_for_an_audit_and_as_many_as_before_for_the_next_reader(tmp_path: Path) -> None:
    database = open_database("metering", "", tmp_path)
    with database.transaction(writes=False) as connection:
        usual = connection.exec_driver_sql("PRAGMA cache_size").scalar()
        with few_pages(connection):
            assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -AUDIT_PAGES_KIB
        assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == usual != -AUDIT_PAGES_KIB
    database.close()

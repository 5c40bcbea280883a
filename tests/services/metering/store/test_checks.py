from pathlib import Path

from services.chassis.database import open_database
from services.metering.store.checks import AUDIT_PAGES_KIB, few_pages


def test_few_pages_are_kept_for_an_audit_and_as_many_as_before_for_the_next_reader(tmp_path: Path) -> None:
    database = open_database("metering", "", tmp_path)
    with database.transaction(writes=False) as connection:
        usual = connection.exec_driver_sql("PRAGMA cache_size").scalar()
        with few_pages(connection):
            assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -AUDIT_PAGES_KIB
        assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == usual != -AUDIT_PAGES_KIB
    database.close()

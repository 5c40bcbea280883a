from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import open_database
from services.metering.__main__ import MIGRATIONS
from services.metering.store.reports import read_usage


@pytest.mark.parametrize(
    ("key_ids", "index"),
    [(["key_a", "key_b"], "usage_hours_by_key (account_id=? AND key_id=? AND"), ([], "PRIMARY KEY")],
)
def test_usage_of_some_keys_is_found_by_their_index_and_that_of_all_by_time(
    key_ids: list[str], index: str, tmp_path: Path
) -> None:
    database = open_database("metering", "", tmp_path)
    database.migrate(MIGRATIONS)
    found: list[tuple[str, Any]] = []
    sa.event.listen(
        database.engine, "before_cursor_execute", lambda c, cursor, text, values, *_: found.append((text, values))
    )
    with database.transaction(writes=False) as connection:
        read_usage(
            connection, "acct_a", 0, 9, bucket_us=0, offsets=[(0, 0)], by_key=True, by_class=False,
            rows_most=9, key_ids=key_ids,
        )  # fmt: skip
        [(text, values)] = found
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        assert index in str([row[-1] for row in plan])
    database.close()

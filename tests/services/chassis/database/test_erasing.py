"""What is deleted from SQLite's files is not in them any more, nor what changed rows were before."""

from pathlib import Path

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.database.erasing import empty_write_log, overwrite_what_is_deleted


def content_of(folder: Path) -> bytes:
    return b"".join(part.read_bytes() for part in folder.iterdir())


async def test_deleted_and_changed_rows_leave_no_trace(tmp_path: Path) -> None:
    database = Database(sa.URL.create("sqlite", database=str(tmp_path / "test.db")), "test")
    # A connection from before is not used any more.
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    overwrite_what_is_deleted(database)
    overwrite_what_is_deleted(database)

    def execute(connection: sa.Connection, statement: str) -> None:
        connection.exec_driver_sql(statement)

    for number in range(200):
        await database.write(execute, f"INSERT INTO people VALUES ({number}, 'Zenobia {number} {'x' * 100}')")
    await database.write(execute, "UPDATE people SET name = 'somebody'")
    await database.write(execute, "DELETE FROM people WHERE id > 3")
    await empty_write_log(database)
    content = content_of(tmp_path)
    assert b"Zenobia" not in content
    assert b"somebody" in content
    database.close()

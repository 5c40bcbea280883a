import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database, open_database
from services.chassis.database.engine import LOG_MOST_BYTES
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.settings import SettingsError
from tests.services.chassis.notes import add, note_ids


async def test_what_was_written_is_read(database: Database) -> None:
    await database.write(add(2, 3))

    assert await database.read(note_ids) == [1, 2, 3]


async def test_what_was_written_is_read_in_place(database: Database) -> None:
    assert await database.read_in_place(note_ids) == [1]
    await database.write(add(2, 3))
    assert await database.read_in_place(note_ids) == [1, 2, 3]


async def test_a_read_in_place_that_is_refused_leaves_no_transaction_open(database: Database) -> None:
    def refuse(connection: sa.Connection) -> None:
        note_ids(connection)
        raise LookupError

    with pytest.raises(LookupError):
        await database.read_in_place(refuse)
    await database.write(add(2))
    assert await database.read_in_place(note_ids) == [1, 2]


async def test_a_read_that_is_refused_leaves_no_transaction_open(database: Database) -> None:
    def refuse(connection: sa.Connection) -> None:
        note_ids(connection)
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            await database.read(refuse)
    await database.write(add(2))
    assert await database.read(note_ids) == [1, 2]


async def test_a_read_that_cannot_succeed_is_an_error(database: Database) -> None:
    with pytest.raises((DatabaseUnavailable, sa.exc.ProgrammingError)):
        await database.read(lambda connection: connection.exec_driver_sql("SELECT 1 FROM nowhere"))
    assert await database.read(note_ids) == [1]


async def test_a_write_that_fails_leaves_nothing_behind(database: Database) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(add(2, 1))

    assert await database.read(note_ids) == [1]
    await database.write(add(2))


async def test_a_commit_that_fails_leaves_nothing_behind_and_is_not_in_the_way_of_the_next(database: Database) -> None:
    await database.write(
        lambda connection: connection.exec_driver_sql(
            "CREATE TABLE answers (note_id BIGINT REFERENCES notes (note_id) DEFERRABLE INITIALLY DEFERRED)"
        )
    )
    driver: Any = database.engine.dialect.loaded_dbapi
    with pytest.raises(driver.IntegrityError):
        await database.write(lambda connection: connection.exec_driver_sql("INSERT INTO answers VALUES (9)"))
    await database.write(lambda connection: connection.exec_driver_sql("INSERT INTO answers VALUES (1)"))
    found = await database.read(lambda connection: connection.exec_driver_sql("SELECT note_id FROM answers").all())
    assert [tuple(row) for row in found] == [(1,)]


async def test_a_write_whose_caller_left_is_committed(database: Database) -> None:
    started, released = threading.Event(), threading.Event()

    def change(connection: sa.Connection) -> None:
        started.set()
        released.wait(20)
        add(2)(connection)

    caller = database.write(change)
    await asyncio.to_thread(started.wait, 20)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    released.set()
    await database.write(add(3))

    assert await database.read(note_ids) == [1, 2, 3]


async def test_a_write_that_waits_its_turn_is_committed_though_its_caller_left(database: Database) -> None:
    released = threading.Event()
    first = database.write(lambda _: released.wait(20))
    second = database.write(add(2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    released.set()
    await first
    await database.write(add(3))

    assert await database.read(note_ids) == [1, 2, 3]


async def test_writes_happen_one_at_a_time_and_in_order(database: Database) -> None:
    def count(connection: sa.Connection) -> int:
        return len(note_ids(connection))

    def count_then_add(note_id: int) -> Callable[[sa.Connection], int]:
        def change(connection: sa.Connection) -> int:
            before = count(connection)
            add(note_id)(connection)
            return before

        return change

    counts = await asyncio.gather(*(database.write(count_then_add(note_id)) for note_id in range(2, 22)))

    assert counts == list(range(1, 21))


async def test_a_read_sees_one_moment(database: Database) -> None:
    looked, written = threading.Event(), threading.Event()

    def look_twice(connection: sa.Connection) -> tuple[list[int], list[int]]:
        before = note_ids(connection)
        looked.set()
        written.wait(20)
        return before, note_ids(connection)

    reading = asyncio.create_task(database.read(look_twice))
    await asyncio.to_thread(looked.wait, 20)
    await database.write(add(2))
    written.set()

    assert await reading == ([1], [1])
    assert await database.read(note_ids) == [1, 2]


async def test_a_read_cannot_write_to_postgresql(postgres_url: str, migrations: Path) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)

    with pytest.raises(sa.exc.InternalError):
        await database.read(add(2))
    database.close()


async def test_services_in_one_postgresql_have_a_schema_each(
    postgres_url: str, migrations: Path, tmp_path: Path
) -> None:
    auth, metering = (open_database(service, postgres_url, tmp_path) for service in ("auth", "metering"))
    auth.migrate(migrations)
    metering.migrate(migrations)
    await auth.write(add(2))

    assert await auth.read(note_ids) == [1, 2]
    assert await metering.read(note_ids) == [1]
    auth.close()
    metering.close()


async def test_services_without_postgresql_have_a_file_each(migrations: Path, tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    auth, metering = (open_database(service, "", data) for service in ("auth", "metering"))
    auth.migrate(migrations)
    metering.migrate(migrations)
    await auth.write(add(2))

    assert await metering.read(note_ids) == [1]
    assert {file.name for file in data.glob("*.db")} == {"auth.db", "metering.db"}
    assert data.stat().st_mode & 0o077 == 0
    auth.close()
    metering.close()


async def test_sqlite_syncs_every_commit_to_the_disk(tmp_path: Path) -> None:
    database = open_database("auth", "", tmp_path)

    async def pragma(name: str) -> object:
        return await database.read(lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar())

    assert (await pragma("journal_mode"), await pragma("synchronous")) == ("wal", 2)
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/name",
        "sqlite:///elsewhere.db",
        "hunter2",
        "postgresql://me:hunter2",
        "postgresql://me:a@hunter2@h/d",
    ],
)
def test_an_address_that_is_not_postgresql_is_refused_and_not_quoted(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="LEGATO_DATABASE_URL") as refused:
        open_database("auth", url, tmp_path)

    assert url not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_nothing_is_told_to_a_database_without_tls_where_its_address_asks_for_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        heard: list[bytes] = []

        def decline() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(1024))
                connection.sendall(b"N")
                heard.append(connection.recv(1024))

        declining = threading.Thread(target=decline)
        declining.start()
        asked = (
            f"postgresql://legato:password@127.0.0.1:{port}/legato?sslmode=verify-full&sslrootcert={tmp_path}/ca.crt"
        )
        database = open_database("auth", asked, tmp_path)
        with pytest.raises(DatabaseUnavailable):
            database.require_migrated(tmp_path)
        declining.join()
        database.close()

    # The question for TLS, in PostgreSQL's protocol, and nothing after it.
    assert heard == [bytes.fromhex("0000000804d2162f"), b""]


def test_a_short_name_of_postgresql_is_understood(postgres_url: str, migrations: Path, tmp_path: Path) -> None:
    database = open_database("auth", postgres_url.replace("postgresql://", "postgres://"), tmp_path)
    database.migrate(migrations)
    database.close()


def test_a_postgresql_without_an_encoding_will_do(postgres_url: str, migrations: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0")
        url = sa.make_url(postgres_url).set(database="ascii").render_as_string()
        database = Database(url, "example")
        database.migrate(migrations)
        database.close()
        connection.execute("DROP DATABASE ascii")


def test_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "what? 100% of it#here"
    database = open_database("auth", "", folder)
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("CREATE TABLE things (name TEXT)")
    database.close()
    assert (folder / "auth.db").exists()


async def test_log_of_writes_that_grew_during_a_read_is_cut_back(tmp_path: Path) -> None:
    database = open_database("auth", "", tmp_path)
    await database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE things (content BLOB)"))
    reading, read = threading.Event(), threading.Event()

    def read_long(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM things").scalar_one()
        reading.set()
        read.wait(60)

    reader = asyncio.create_task(database.read(read_long))
    await asyncio.to_thread(reading.wait, 20)
    await database.write(put(2 * LOG_MOST_BYTES))
    log = tmp_path / "auth.db-wal"
    assert log.stat().st_size > LOG_MOST_BYTES
    read.set()
    await reader

    for _ in range(3):
        await database.write(put(1))
    assert log.stat().st_size <= LOG_MOST_BYTES
    database.close()


def put(size_bytes: int) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.exec_driver_sql("INSERT INTO things VALUES (zeroblob(?))", (size_bytes,))

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from services.chassis.database import database as database_engine
from services.chassis.database.database import (
    LOG_MOST_BYTES,
    SILENCE_S,
    Database,
    DatabaseUnavailable,
    make_engine,
    open_database,
)
from services.chassis.errors import Reason
from services.chassis.settings import SettingsError
from tests.services.chassis.notes import add, note_ids


async def test_what_was_written_is_read(database: Database) -> None:
    await database.write(add(2, 3))

    assert await database.read(note_ids) == [1, 2, 3]


async def test_a_single_row_is_read_as_it_is_now(database: Database) -> None:
    assert await database.read_row("SELECT count(*) FROM notes") == (1,)
    await database.write(add(2, 3))
    assert await database.read_row("SELECT count(*) FROM notes") == (3,)
    assert await database.read_row("SELECT note_id FROM notes WHERE note_id > 3") is None


async def test_a_single_row_is_read_though_the_connection_was_lost(database: Database) -> None:
    await database.read_row("SELECT 1")
    database._looking.driver_connection.close()
    assert await database.read_row("SELECT 1") == (1,)


async def test_a_single_row_that_cannot_be_read_is_an_error(database: Database) -> None:
    with pytest.raises((DatabaseUnavailable, sa.exc.ProgrammingError, psycopg.ProgrammingError)):
        await database.read_row("SELECT 1 FROM nowhere")
    assert await database.read_row("SELECT 1") == (1,)


async def test_a_short_read_sees_what_was_written(database: Database) -> None:
    assert await database.read_briefly(note_ids) == [1]
    await database.write(add(2, 3))
    assert await database.read_briefly(note_ids) == [1, 2, 3]


async def test_a_short_read_that_is_refused_leaves_no_transaction_open(database: Database) -> None:
    def refuse(connection: sa.Connection) -> None:
        note_ids(connection)
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            await database.read_briefly(refuse)
    await database.write(add(2))
    assert await database.read_briefly(note_ids) == [1, 2]


async def test_a_short_read_succeeds_though_the_connection_was_lost(tmp_path: Path, migrations: Path) -> None:
    database = open_database("notes", "", tmp_path)
    database.migrate(migrations)
    await database.read_briefly(note_ids)
    assert database._reading is not None
    driver: Any = database._reading.connection.driver_connection
    driver.close()
    assert await database.read_briefly(note_ids) == [1]
    assert await database.read_briefly(note_ids) == [1]
    database.close()


async def test_a_short_read_that_cannot_succeed_is_an_error(database: Database) -> None:
    with pytest.raises((DatabaseUnavailable, sa.exc.ProgrammingError)):
        await database.read_briefly(lambda connection: connection.exec_driver_sql("SELECT 1 FROM nowhere"))
    assert await database.read_briefly(note_ids) == [1]


async def test_reading_a_single_row_of_sqlite_changes_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database("notes", "", tmp_path)

    def refuse(*work: object) -> None:
        raise AssertionError("a thread was used")

    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse, raising=False)
    assert await database.read_row("SELECT 1") == (1,)
    monkeypatch.undo()
    database.close()


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

    caller = asyncio.create_task(database.write(change))
    await asyncio.to_thread(started.wait, 20)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    released.set()
    await database.write(add(3))

    assert await database.read(note_ids) == [1, 2, 3]


async def test_a_write_that_waits_its_turn_is_committed_though_its_caller_left(database: Database) -> None:
    released = threading.Event()
    first = asyncio.create_task(database.write(lambda _: released.wait(20)))
    second = asyncio.create_task(database.write(add(2)))
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


async def test_database_that_cannot_be_reached_is_unavailable() -> None:
    absent = Database("postgresql://legato@/nowhere?host=/nonexistent", "auth")
    with pytest.raises(DatabaseUnavailable) as caught:
        await absent.read(lambda connection: None)
    assert caught.value.reason is Reason.UNAVAILABLE
    with pytest.raises(DatabaseUnavailable, match=r"LEGATO_DATABASE_URL.*No such file"):
        absent.migrate(Path())
    absent.close()


async def test_connection_that_is_lost_half_way_is_unavailable_and_replaced(
    postgres_url: str, migrations: Path
) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)

    def lose_connection(connection: sa.Connection) -> list[int]:
        process_id = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with psycopg.connect(postgres_url, autocommit=True) as killer:
            killer.execute("SELECT pg_terminate_backend(%s, 20000)", (process_id,))
        return note_ids(connection)

    for run in (database.read, database.write):
        with pytest.raises(DatabaseUnavailable):
            await run(lose_connection)
        assert await run(note_ids) == [1]
    database.close()


async def test_transaction_that_the_server_ends_is_unavailable(postgres_url: str, migrations: Path) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)

    def take_too_long(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET LOCAL transaction_timeout = 1")
        connection.exec_driver_sql("SELECT pg_sleep(20)")

    for run in (database.read, database.write):
        with pytest.raises(DatabaseUnavailable):
            await run(take_too_long)
        assert await run(note_ids) == [1]
    database.close()


async def test_replica_that_stands_still_keeps_no_other_from_what_it_locked(
    postgres_url: str, migrations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_engine, "SILENCE_S", 1)
    frozen, other = (Database(postgres_url, "example") for _ in range(2))
    frozen.migrate(migrations)
    locked, released = threading.Event(), threading.Event()

    def stand_still(connection: sa.Connection) -> None:
        lock_notes(connection)
        locked.set()
        released.wait(60)
        add(2)(connection)

    freezing = asyncio.create_task(frozen.write(stand_still))
    await asyncio.to_thread(locked.wait, 20)
    await other.write(lock_notes)
    released.set()
    with pytest.raises(DatabaseUnavailable):
        await freezing
    assert await frozen.read(note_ids) == [1]
    await frozen.write(add(2))
    for database in (frozen, other):
        database.close()


def lock_notes(connection: sa.Connection) -> None:
    connection.exec_driver_sql("SELECT note_id FROM notes FOR UPDATE").all()


async def test_standby_that_takes_no_writes_is_unavailable_and_can_be_read(postgres_url: str, migrations: Path) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET default_transaction_read_only = on".encode())
    database.engine.dispose()

    with pytest.raises(DatabaseUnavailable):
        await database.write(add(2))
    assert await database.read(note_ids) == [1]
    database.close()


async def test_full_database_is_unavailable_until_there_is_room(database: Database) -> None:
    with no_room(database), pytest.raises(DatabaseUnavailable):
        await database.write(add(*range(2, 10_000)))
    await database.write(add(2))

    assert await database.read(note_ids) == [1, 2]


@pytest.mark.parametrize("damage", ["no database", "broken pages"])
async def test_damaged_database_names_its_file_to_whoever_starts_the_process(
    damage: str, migrations: Path, tmp_path: Path
) -> None:
    whole = open_database("auth", "", tmp_path)
    whole.migrate(migrations)
    whole.close()
    file = tmp_path / "auth.db"
    content = file.read_bytes()
    # All that follows the header: every page of every table.
    file.write_bytes(b"x" * len(content) if damage == "no database" else content[:100] + b"x" * (len(content) - 100))
    database = open_database("auth", "", tmp_path)
    with pytest.raises(DatabaseUnavailable) as started:
        database.prepare(migrations, migrates=True)
    with pytest.raises(DatabaseUnavailable) as asked:
        await database.read(note_ids)
    database.close()
    for raised in (started.value, asked.value):
        [note] = raised.__notes__
        assert f"the database {file} is damaged" in note
        assert "restore-the-database.md" in note
        # A client is told nothing of files.
        assert raised.message == "The database is not available right now. Please retry."


@contextmanager
def no_room(database: Database) -> Iterator[None]:
    if database.is_sqlite:
        sa.event.listen(database.engine, "checkout", keep_size)
        yield
        sa.event.remove(database.engine, "checkout", keep_size)
        database.engine.dispose()
        return
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$"
        )
        connection.exec_driver_sql("CREATE TRIGGER no_room BEFORE INSERT ON notes EXECUTE FUNCTION refuse_room()")
    yield
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("DROP FUNCTION refuse_room CASCADE")


def keep_size(connection: Any, record: object, proxy: object) -> None:
    # Less than it has is taken for what it has.
    connection.execute("PRAGMA max_page_count = 1")


# In PostgreSQL's protocol: come in, and ask.
WELCOME = bytes.fromhex("5200000008000000005a0000000549")


def test_server_that_vanished_is_given_up_also_while_its_answer_is_waited_for() -> None:
    """A client that only waits sends nothing, so the kernel has to ask whether the server is still there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        greeting = threading.Thread(target=greet_once, args=[server])
        greeting.start()
        engine = make_engine(f"postgresql://legato@127.0.0.1:{server.getsockname()[1]}/legato?sslmode=disable", "auth")
        seen: dict[str, int] = {}

        @sa.event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
            connection = dialect.connect(*arguments, **options)
            with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as own:
                seen["asks"] = own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                seen["after_s"] = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                seen["gives_up_after_ms"] = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            return connection

        with pytest.raises(sa.exc.OperationalError):
            engine.connect()
        greeting.join()
    assert seen == {"asks": 1, "after_s": SILENCE_S, "gives_up_after_ms": SILENCE_S * 1000}


def greet_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(WELCOME)
        # Whatever it asks is not answered.
        connection.recv(1024)


async def test_log_of_writes_that_grew_while_somebody_read_is_cut_back(tmp_path: Path) -> None:
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

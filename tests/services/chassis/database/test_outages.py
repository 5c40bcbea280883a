"""Databases that cannot be reached, are lost half way, take no writes, are full or are damaged."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from services.chassis.database import engine as database_engine
from services.chassis.database.database import Database, open_database
from services.chassis.database.engine import SILENCE_S, make_engine
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.errors import Reason
from tests.services.chassis.notes import add, note_ids


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

    freezing = frozen.write(stand_still)
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
    told: list[bool] = []
    database.on_full = told.append
    with no_room(database), pytest.raises(DatabaseUnavailable):
        await database.write(add(*range(2, 10_000)))
    assert told == [True]
    await database.write(add(2))
    await database.write(add(3))

    assert told == [True, False]
    assert await database.read(note_ids) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["no database", "broken pages"])
async def test_damaged_database_names_its_file_to_the_person_who_starts_the_process(
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

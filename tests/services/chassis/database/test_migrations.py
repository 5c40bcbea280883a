import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database, open_database
from services.chassis.database.outages import DatabaseUnavailable
from tests.services.chassis.notes import MIGRATION, add, note_ids
from tests.support.waiting import until

SERVICES = Path(__file__).parents[4] / "services"


def test_migrations_are_applied_once(database: Database, migrations: Path) -> None:
    database.migrate(migrations)

    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]


def test_a_database_that_is_up_to_date_does_without_alembic(
    database: Database, migrations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To import it fails from here on.
    monkeypatch.setitem(sys.modules, "alembic", None)
    database.migrate(migrations)
    database.require_migrated(migrations)


@pytest.mark.parametrize("folder", sorted(SERVICES.glob("*/migrations")), ids=lambda folder: folder.parent.name)
def test_database_of_each_service_is_up_to_date_once_its_scripts_were_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database("example", "", tmp_path)
    database.migrate(folder)
    monkeypatch.setitem(sys.modules, "alembic", None)
    database.migrate(folder)
    database.close()


def test_two_replicas_that_start_at_once_take_turns(postgres_url: str, migrations: Path) -> None:
    replicas = [Database(postgres_url, "example") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda replica: replica.migrate(migrations), replicas))

    for replica in replicas:
        with replica.transaction(writes=False) as connection:
            assert note_ids(connection) == [1]
        replica.close()


def test_a_migration_that_fails_leaves_nothing_behind(database_url: str, migrations: Path) -> None:
    script = migrations / "versions" / "0001_notes.py"
    script.write_text(MIGRATION + "    raise RuntimeError\n")
    database = Database(database_url, "example")
    with pytest.raises(RuntimeError):
        database.migrate(migrations)

    script.write_text(MIGRATION)
    database.migrate(migrations)

    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]
    database.close()


def test_a_script_that_the_database_refuses_is_told_as_such(postgres_url: str, migrations: Path) -> None:
    (migrations / "versions" / "0001_notes.py").write_text(MIGRATION + '    op.execute("SELECT colour FROM notes")\n')
    database = Database(postgres_url, "example")
    told = 'the schema example cannot be migrated, and was left as it was: column "colour" does not exist'
    with pytest.raises(DatabaseUnavailable, match=f"^{told}$"):
        database.migrate(migrations)
    database.close()


def test_a_database_that_is_behind_its_scripts_is_told_from_one_that_is_not(
    database_url: str, migrations: Path
) -> None:
    database = Database(database_url, "example")
    with pytest.raises(DatabaseUnavailable, match="legato migrate"):
        database.require_migrated(migrations)
    database.migrate(migrations)
    database.require_migrated(migrations)
    (migrations / "versions" / "0002_more.py").write_text(
        'revision = "0002"\ndown_revision = "0001"\n\n\ndef upgrade() -> None:\n    pass\n'
    )
    with pytest.raises(DatabaseUnavailable, match="legato migrate"):
        database.require_migrated(migrations)
    database.close()


def test_a_service_that_starts_migrates_unless_it_is_told_that_another_process_does(
    database_url: str, migrations: Path
) -> None:
    database = Database(database_url, "example")
    with pytest.raises(DatabaseUnavailable, match="legato migrate"):
        database.prepare(migrations, migrates=False)
    database.prepare(migrations, migrates=True)
    database.prepare(migrations, migrates=False)

    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]
    database.close()


def test_a_database_that_is_ahead_of_its_scripts_will_do(database_url: str, migrations: Path) -> None:
    database = Database(database_url, "example")
    later = migrations / "versions" / "0002_more.py"
    later.write_text('revision = "0002"\ndown_revision = "0001"\n\n\ndef upgrade() -> None:\n    pass\n')
    database.migrate(migrations)
    later.unlink()

    # As a replica of the version before does that is started again while another is brought in, or goes back to.
    database.prepare(migrations, migrates=False)
    database.prepare(migrations, migrates=True)

    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]
    database.close()


def test_a_schema_that_was_prepared_is_used_by_a_user_who_may_not_make_one(postgres_url: str, migrations: Path) -> None:
    role = f"of_{sa.make_url(postgres_url).database}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
    database = Database(sa.make_url(postgres_url).set(username=role), "example")
    with pytest.raises(DatabaseUnavailable, match="permission denied"):
        database.migrate(migrations)

    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE SCHEMA example AUTHORIZATION {role}".encode())
    database.migrate(migrations)

    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]
    database.close()
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {role}".encode())
        owner.execute(f"DROP ROLE {role}".encode())


async def test_a_later_version_may_come_while_one_waits_for_its_turn(postgres_url: str, migrations: Path) -> None:
    database = Database(postgres_url, "example")
    with psycopg.connect(postgres_url, autocommit=True) as later:
        later.execute("SELECT pg_advisory_lock(hashtext('legato:example'))")
        reasons: list[str] = []
        migrating = asyncio.create_task(asyncio.to_thread(database.migrate, migrations, reasons.append))
        await until(lambda: reasons == ["another process migrates it"])
        later.execute("CREATE SCHEMA example")
        version = "SELECT '0002' AS version_num, '' AS oldest_num, '' AS release"
        later.execute(f"CREATE TABLE example.schema_version AS {version}".encode())
    await migrating

    database.require_migrated(migrations)
    database.close()


async def test_a_table_in_use_makes_the_migration_wait_and_not_everybody_else(
    postgres_url: str, migrations: Path
) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)
    script = 'revision = "0002"\ndown_revision = "0001"\n\ndef upgrade() -> None:\n    op.execute("{sql}")\n'
    sql = "ALTER TABLE notes ADD COLUMN colour text"
    (migrations / "versions" / "0002_colour.py").write_text("from alembic import op\n" + script.format(sql=sql))
    reasons: list[str] = []
    with psycopg.connect(postgres_url) as reader:
        # It holds what it has read until its transaction ends, as an audit does.
        reader.execute("SELECT * FROM example.notes")
        migrating = asyncio.create_task(asyncio.to_thread(database.migrate, migrations, reasons.append))
        await until(lambda: reasons == ["others use its tables, such as an audit"])
        await database.write(add(2))
        reader.commit()
    await migrating
    database.require_migrated(migrations)
    assert await database.read(note_ids) == [1, 2]
    database.close()


async def test_a_migration_that_the_server_ends_for_a_deadlock_lets_others_go_first_and_tries_again(
    postgres_url: str, migrations: Path
) -> None:
    database = Database(postgres_url, "example")
    database.migrate(migrations)
    gate, row = "pg_advisory_xact_lock(1)", "pg_advisory_xact_lock(2)"
    statements = (
        # The server ends the one that looks for a deadlock first.
        "SET LOCAL deadlock_timeout = '50ms'",
        "SET LOCAL lock_timeout = '1min'",
        "LOCK TABLE notes IN SHARE MODE",
        f"SELECT {gate}",
        f"SELECT {row}",
        "UPDATE notes SET note_id = 2",
    )
    script = 'from alembic import op\nrevision = "0002"\ndown_revision = "0001"\n\ndef upgrade() -> None:\n'
    script += "".join(f'    op.execute("{statement}")\n' for statement in statements)
    (migrations / "versions" / "0002_lock.py").write_text(script)
    reasons: list[str] = []
    with (
        psycopg.connect(postgres_url, autocommit=True) as watcher,
        psycopg.connect(postgres_url) as gatekeeper,
        psycopg.connect(postgres_url) as other,
    ):
        gatekeeper.execute(f"SELECT {gate}".encode())
        other.execute(f"SELECT {row}".encode())
        other.execute("SET LOCAL deadlock_timeout = '1min'")

        def waits_for(kind: str) -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s"
            return watcher.execute(waiting, (kind,)).fetchone() == (1,)

        migrating = asyncio.create_task(asyncio.to_thread(database.migrate, migrations, reasons.append))
        await until(lambda: waits_for("advisory"))
        insert = "INSERT INTO example.notes (note_id) VALUES (4)"
        writing = asyncio.create_task(asyncio.to_thread(other.execute, insert))
        await until(lambda: waits_for("relation"))
        gatekeeper.commit()
        await writing
        await until(lambda: reasons == ["others use its tables, such as an audit"])
        other.execute("DELETE FROM example.notes WHERE note_id = 4")
        other.commit()
    await migrating
    assert await database.read(note_ids) == [2]
    database.close()

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.database.held_lock import HeldLock


def test_one_process_holds_it_until_it_ends(postgres_url: str) -> None:
    first, second = (Database(postgres_url, "metering") for _ in range(2))
    held, wanted, other = HeldLock(first, "audit"), HeldLock(second, "audit"), HeldLock(second, "another")
    assert held.take()
    assert held.take()
    assert not wanted.take()
    assert other.take()
    held.release()
    assert wanted.take()
    assert not held.take()
    for lock in (held, wanted, other):
        lock.release()
    first.close()
    second.close()


def test_a_process_that_has_lost_its_connection_has_lost_the_lock(postgres_url: str) -> None:
    """As by a failover. It takes the lock again, unless another was faster."""
    first, second = (Database(postgres_url, "metering") for _ in range(2))
    held, wanted = HeldLock(first, "audit"), HeldLock(second, "audit")
    assert held.take()
    _end_holders(second)
    assert wanted.take()
    assert not held.take()
    _end_holders(first)
    assert wanted.take()
    held.release()
    wanted.release()
    first.close()
    second.close()


def test_sqlite_has_one_process(database_url: str) -> None:
    database = Database(database_url, "metering")
    lock = HeldLock(database, "audit")
    assert lock.take()
    lock.release()
    database.close()


def _end_holders(database: Database) -> None:
    """Returns when those that hold advisory locks are gone."""
    with database.engine.connect() as connection:
        query = "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND database = "
        connection.execute(sa.text(f"{query} (SELECT oid FROM pg_database WHERE datname = current_database())"))

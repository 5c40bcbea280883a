import threading

import sqlalchemy as sa

from services.chassis.database.advisory_lock import take_lock


def test_a_process_that_waits_says_so_once_and_does_not_hold_up_an_index_that_is_built(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    waits = threading.Semaphore(0)
    told: list[str] = []

    def tell(reason: str) -> None:
        told.append(reason)
        waits.release()

    def wait() -> None:
        with engine.connect() as second:
            take_lock(second, "pg_try_advisory_lock", "example", tell)
            told.append("taken")

    with engine.connect() as first:
        take_lock(first, "pg_try_advisory_lock", "example", told.append)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert waits.acquire(timeout=60)
        first.exec_driver_sql("CREATE TABLE things (thing_id bigint)")
        first.exec_driver_sql("CREATE INDEX CONCURRENTLY things_by_id ON things (thing_id)")
        assert told == ["another process migrates it"]
        first.execute(sa.text("SELECT pg_advisory_unlock_all()"))
    waiting.join(60)
    assert told == ["another process migrates it", "taken"]
    engine.dispose()

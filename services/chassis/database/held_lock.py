"""A lock that one process of many holds for as long as it runs, for work that one of them is enough for."""

import contextlib

import sqlalchemy as sa

from services.chassis.database.database import Database


class HeldLock:
    """An advisory lock of PostgreSQL, held by a connection of its own: a process that ends, or loses its database, has
    lost the lock. SQLite has one process, which always holds it."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = f"legato:{database.schema}:{name}"
        self._holding: sa.Connection | None = None

    def take(self) -> bool:
        """Returns whether this process holds the lock, which it takes if nobody does. Waits for the database only."""
        if self._database.is_sqlite or self._is_held():
            return True
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        attempt = sa.text("SELECT pg_try_advisory_lock(hashtext(:name))").bindparams(name=self._name)
        if not connection.scalar(attempt):
            connection.close()
            return False
        # The pool gets another in its place.
        connection.detach()
        self._holding = connection
        return True

    def release(self) -> None:
        connection, self._holding = self._holding, None
        if connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                connection.close()

    def _is_held(self) -> bool:
        """Returns whether there is a connection and it lives: a failover, for one, ends it together with the lock."""
        if self._holding is None:
            return False
        try:
            self._holding.scalar(sa.text("SELECT 1"))
        except sa.exc.SQLAlchemyError:
            self.release()
            return False
        return True

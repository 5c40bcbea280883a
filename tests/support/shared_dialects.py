"""Statements that are compiled once in a test process, rather than once for each database that a test opens.

An engine compiles every statement that it meets for the first time, and forgets all of them with its database: half of
what Python does in a test of the store. What SQLAlchemy and our own queries have compiled is kept by dialect.
"""

import sqlalchemy as sa

from services.chassis.database.engine import make_engine


class SharedDialects:
    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], sa.Engine] = {}

    def make_engine(self, url: str | sa.URL, schema: str) -> sa.Engine:
        engine = make_engine(url, schema)
        kind = (engine.dialect.name, schema)
        first = self._engines.get(kind)
        # One that was never connected does not know its server's version.
        if first is None or getattr(first.dialect, "server_version_info", None) is None:
            self._engines[kind] = engine
            return engine
        engine.dialect = first.dialect
        engine._compiled_cache = first._compiled_cache
        return engine

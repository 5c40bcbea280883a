"""Statements that are compiled once in a test process, rather than once for each database that a test opens.

An engine compiles every statement that it meets for the first time, and forgets all of them with its database: half of
what Python does in a test of the store. What SQLAlchemy and our own queries have compiled is kept by dialect.
"""

from typing import Any, Final

import sqlalchemy as sa

from services.chassis.database.engine import CONNECT_TIMEOUT_S, SILENCE_S, make_engine

# A server and a test that share two processors with much else may both pause for longer than the product's timeouts.
PATIENCE_S: Final = 60


class SharedDialects:
    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], sa.Engine] = {}

    def make_engine(self, url: str | sa.URL, schema: str) -> sa.Engine:
        engine = make_engine(url, schema)
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "do_connect", _be_patient)
        kind = (engine.dialect.name, schema)
        first = self._engines.get(kind)
        # One that was never connected does not know its server's version.
        if first is None or getattr(first.dialect, "server_version_info", None) is None:
            self._engines[kind] = engine
            return engine
        engine.dialect = first.dialect
        engine._compiled_cache = first._compiled_cache
        return engine


def _be_patient(dialect: sa.Dialect, record: object, arguments: list[Any], options: dict[str, Any]) -> None:
    """Replaces the product's timeouts for a slow server, unless a test has set others."""
    if options["connect_timeout"] == CONNECT_TIMEOUT_S:
        options["connect_timeout"] = PATIENCE_S
    idle = "idle_in_transaction_session_timeout="
    options["options"] = options["options"].replace(f"{idle}{SILENCE_S * 1000}", f"{idle}{PATIENCE_S * 1000}")

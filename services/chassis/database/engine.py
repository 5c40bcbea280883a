"""Makes engines: connections to SQLite and to PostgreSQL, with timeouts that release the locks of a lost process."""

import contextlib
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.settings import SettingsError

READERS: Final = 4

# Timeout for a server that vanished, and for an idle transaction.
SILENCE_S: Final = 5
# Shorter, so that a server that is back is found soon after an attempt to connect to one that hung.
CONNECT_TIMEOUT_S: Final = 3

# SQLite's write-ahead log has some 4 MB. It grows during a long read, such as an audit, and is truncated to this
# afterwards.
LOG_MOST_BYTES: Final = 16 * 1024 * 1024


def make_engine(url: str | sa.URL, schema: str) -> sa.Engine:
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        engine = sa.create_engine(parsed, connect_args={"timeout": 10, "check_same_thread": False})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine
    if parsed.get_backend_name() == "postgresql":
        return sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            connect_args={
                # Releases the locks of a replica that is lost, or stalls, in mid-transaction.
                "options": f"-csearch_path={schema} -cidle_in_transaction_session_timeout={SILENCE_S * 1000}",
                # Without it, a database with encoding SQL_ASCII would return text as bytes.
                "client_encoding": "utf8",
                "connect_timeout": CONNECT_TIMEOUT_S,
                # Gives up a server that vanished silently, rather than letting every thread in turn wait for it.
                "tcp_user_timeout": SILENCE_S * 1000,
                "keepalives_idle": SILENCE_S,
                "keepalives_interval": 1,
            },
            # And the writer.
            pool_size=READERS + 1,
            pool_pre_ping=True,
        )
    raise SettingsError("LEGATO_DATABASE_URL must start with sqlite: or postgresql:")


def _parse(url: str | sa.URL) -> sa.URL:
    # The URL is never quoted: where a `@` in a password is not escaped, the rest of it is parsed as the host.
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
        parsed = sa.make_url(url)
        if "@" not in (parsed.host or ""):
            return parsed
    raise SettingsError("LEGATO_DATABASE_URL is not a valid database URL")


def _prepare_sqlite(connection: Any, record: object) -> None:
    # `Database` begins transactions explicitly; the driver must not.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=10000",
        f"journal_size_limit={LOG_MOST_BYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}")

"""How a database is reached, and for how long nobody waits in vain: neither we for a server, nor it for us."""

import contextlib
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.settings import SettingsError

READERS: Final = 4

# How long the other side may be silent: a server that was asked something, or to it whoever has begun a transaction.
SILENCE_S: Final = 5

# SQLite's log of writes has some 4 MB. It grows for as long as a long read lasts, such as an audit, and is cut back to
# this when that is over.
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
                # What a replica has locked that is lost, or stands still, in mid-transaction is free for others again.
                "options": f"-csearch_path={schema} -cidle_in_transaction_session_timeout={SILENCE_S * 1000}",
                # In a database without an encoding of its own, text would come back as bytes.
                "client_encoding": "utf8",
                "connect_timeout": SILENCE_S,
                # A server that vanished without a word is given up, whether or not it had heard what was asked, rather
                # than waited for by every thread in turn.
                "tcp_user_timeout": SILENCE_S * 1000,
                "keepalives_idle": SILENCE_S,
                "keepalives_interval": 1,
            },
            pool_size=READERS + 1,
            pool_pre_ping=True,
        )
    raise SettingsError("LEGATO_DATABASE_URL must start with sqlite: or postgresql:")


def _parse(url: str | sa.URL) -> sa.URL:
    # Not quoted, here or later: where a `@` in a password is not escaped, what follows it is taken for the host.
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
        parsed = sa.make_url(url)
        if "@" not in (parsed.host or ""):
            return parsed
    raise SettingsError("LEGATO_DATABASE_URL is not a database's address")


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # Transactions begin where we say (`Database`), not where the driver guesses.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=10000",
        f"journal_size_limit={LOG_MOST_BYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}")

"""The database's own clock: replicas may differ about the time, but not about this one."""

from typing import Final

import sqlalchemy as sa

_SQLITE: Final = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
_POSTGRESQL: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


def read_now_us(connection: sa.Connection) -> int:
    cursor = connection.connection.cursor()
    cursor.execute(_SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL)
    [(now_us,)] = cursor.fetchall()
    return int(now_us)

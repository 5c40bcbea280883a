"""The database's own clock: replicas may differ about the time, but not about this one."""

import sqlalchemy as sa


def read_now_us(connection: sa.Connection) -> int:
    if connection.dialect.name == "sqlite":
        now = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
    else:
        now = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
    return int(connection.exec_driver_sql(now).scalar_one())

"""Stores which version of a file each process of a fleet has read and could take over, for as long as it says so."""

from typing import Final

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.chassis.database.insert import insert_into
from services.metering.store.schema import metadata

staged_files = sa.Table(
    "staged_files",
    metadata,
    sa.Column("file", sa.Text, primary_key=True),
    sa.Column("process_id", sa.Text, primary_key=True),
    sa.Column("version", sa.Text),
    sa.Column("expires_us", sa.BigInteger),
)

# The files of which all processes have the same version.
ROUTES: Final = "routes"
PRICES: Final = "prices"

# A process that has not reported for so long has ended, or is cut off.
KEPT_US: Final = 30_000_000


def report_version(connection: sa.Connection, file: str, process_id: str, version: str) -> bool:
    """Records the version that a process has read, which is empty if it cannot be taken over. Returns whether all
    processes have read this one."""
    now_us = read_now_us(connection)
    connection.execute(sa.delete(staged_files).where(staged_files.c.file == file, staged_files.c.expires_us <= now_us))
    row = {"version": version, "expires_us": now_us + KEPT_US}
    insert = insert_into(connection, staged_files).values(file=file, process_id=process_id, **row)
    connection.execute(insert.on_conflict_do_update(index_elements=["file", "process_id"], set_=row))
    versions = connection.scalars(sa.select(staged_files.c.version).where(staged_files.c.file == file).distinct())
    return bool(version) and versions.all() == [version]

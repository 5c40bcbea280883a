"""Migrates a service's schema by its Alembic scripts, and says how far it is."""

import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from services.chassis.database import schema_version
from services.chassis.database.advisory_lock import OnWait, take_lock
from services.chassis.database.concurrent_indexes import build_concurrently
from services.chassis.database.outages import (
    DatabaseUnavailable,
    Deadlocked,
    LockTimeout,
    SchemaTooNew,
    SchemaUnknown,
    TranslatedOutages,
    outage_reasons,
)
from services.chassis.sentence import Sentence

# How long a migration makes others wait for a table that it waits for itself, and how long it then lets them go first.
LOCK_TIMEOUT_S = 1
LOCK_PAUSE_S = 2.0


class Migrations:
    """The migrations of one schema."""

    def __init__(
        self, engine: sa.Engine, schema: str, read_outages: TranslatedOutages, write_outages: TranslatedOutages
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._read_outages = read_outages
        self._write_outages = write_outages

    def run(self, folder: Path, on_wait: OnWait) -> None:
        """Migrates the schema with the Alembic scripts in `folder`. Replicas that start at the same time take turns;
        `on_wait` is told the reason before it waits."""
        if not self._is_behind(folder):
            # The usual case: importing Alembic would keep some 10 MB in memory.
            return
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        scripts = [script.module for script in ScriptDirectory.from_config(config).walk_revisions()]
        if not self._is_sqlite:
            with outage_reasons(self._schema), self._write_outages:
                indexes = [getattr(script, "BUILT_CONCURRENTLY", {}) for script in scripts]
                preparing = [
                    script.prepare_concurrently for script in scripts if hasattr(script, "prepare_concurrently")
                ]
                build_concurrently(self._engine, self._schema, indexes, preparing, on_wait)
        refusing = [script.revision for script in scripts if getattr(script, "REFUSES_OLDER", False)]
        with outage_reasons(self._schema):
            while True:
                try:
                    self._run_scripts(folder, config, max(refusing, default=""), on_wait)
                    break
                except (LockTimeout, Deadlocked):
                    on_wait("others use its tables, such as an audit")
                    time.sleep(LOCK_PAUSE_S)

    def _run_scripts(self, folder: Path, config: Any, oldest: str, on_wait: OnWait) -> None:
        """Runs the scripts of Alembic's `config` in one transaction. Raises LockTimeout or Deadlocked if another is in
        the way."""
        from alembic import command

        with self._write_outages, self._engine.connect() as connection:
            if self._is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                take_lock(connection, "pg_try_advisory_xact_lock", f"legato:{self._schema}", on_wait)
                # Whatever needs a table waits behind a script that waits for it.
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
                if not sa.inspect(connection).has_schema(self._schema):
                    # An existing schema does not require the permission to create one.
                    connection.exec_driver_sql(f'CREATE SCHEMA "{self._schema}"')
            if self._is_behind_on(connection, folder):
                schema_version.prepare_table(connection)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                schema_version.record(connection, oldest)
            connection.commit()

    def require(self, folder: Path) -> None:
        """Raises if the schema is behind the scripts in `folder`, where `legato migrate` runs them."""
        if self._is_behind(folder):
            problem = f"the schema {self._schema} is not up to date: run legato migrate"
            raise DatabaseUnavailable(Sentence.verbatim(problem))

    def read_version(self) -> schema_version.SchemaVersion | None:
        with outage_reasons(self._schema), self._read_outages, self._engine.connect() as connection:
            return schema_version.read_version(connection)

    def _is_behind(self, folder: Path) -> bool:
        with outage_reasons(self._schema), self._read_outages, self._engine.connect() as connection:
            return self._is_behind_on(connection, folder)

    def _is_behind_on(self, connection: sa.Connection, folder: Path) -> bool:
        """Returns whether there are scripts that have not been run; raises if the schema is too new."""
        version, own = schema_version.read_version(connection), schema_version.revisions_of(folder)
        if version is not None and version.oldest > own[-1]:
            raise SchemaTooNew(self._schema, version.release)
        # A later revision is of a later release, which stays compatible while both run.
        if version is None or version.revision >= own[-1]:
            return version is None
        if version.revision not in own:
            # Scripts are merged before a release: no release has made this schema.
            raise SchemaUnknown(self._schema, version.revision)
        return True

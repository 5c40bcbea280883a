"""Alembic's environment; the database module supplies the connection and its transaction."""

from alembic import context

from services.chassis.database.schema_version import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
context.run_migrations()

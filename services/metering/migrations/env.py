"""Alembic's entry point; the connection, and the transaction around everything, are the database's own."""

from alembic import context

from services.chassis.database.schema_version import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
context.run_migrations()

"""Alembic's entry point; the connection, and the transaction around everything, are the database's own."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()

"""Alembic's environment; the database module supplies the connection and its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()

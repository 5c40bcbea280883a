"""Adds the version of the routes to a request. Older processes do not name the column, and leave it empty."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("holds", sa.Column("routes_version", sa.Text))

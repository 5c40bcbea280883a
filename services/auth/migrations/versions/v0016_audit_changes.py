"""Adds what events of the audit log changed, and finds events by their object."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("audit_events", sa.Column("changes", sa.Text))
    op.create_index("audit_events_by_object", "audit_events", ["object_id", "event_no"])

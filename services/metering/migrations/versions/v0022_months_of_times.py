"""Adds the months of how long chats took to their days, so that a year is read in few rows."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    connection = op.get_bind()
    sums: defaultdict[tuple[str | int, ...], Counter[str]] = defaultdict(Counter)
    for *row, start_us, counts in connection.execute(sa.select(TIMES).where(TIMES.c.grain.in_(GRAINS))):
        month = datetime.fromtimestamp(start_us // 1_000_000, UTC).replace(day=1)
        sums[*row, round(month.timestamp()) * 1_000_000].update(json.loads(counts))
    for (grain, *row), counts in sums.items():
        connection.execute(sa.insert(TIMES).values((GRAINS[str(grain)], *row, json.dumps(counts))))


GRAINS = {"day": "month", "key_day": "key_month"}
TIMES = sa.table(
    "chat_times",
    *map(sa.column, ("grain", "account_id", "key_id", "class_id", "measure", "start_us", "chats_by_bucket")),
)

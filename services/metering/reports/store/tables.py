"""The table of statistics, as the migrations create it: what reports are made of, besides the exact hours."""

from typing import Final

import sqlalchemy as sa

from services.metering.reports.additions import SUMMED
from services.metering.reports.chat_times import MEASURES
from services.metering.store.schema import metadata

# A row is of one key, or of all keys of an account together, whose id is empty; `of_key` tells them apart, so that
# either lie together. `span` is that of a row: an hour, a day or a month of UTC, which begins at `start_us`.
USAGE_DAY: Final = (
    "of_key", "span", "start_us", "account_id", "key_id", "class_id", "provider", "model_name",
)  # fmt: skip
_TYPES: Final = {"of_key": sa.Boolean, "start_us": sa.BigInteger}
# JSON objects: of each measure, by bucket of the time, how many chats; and by reason, how many chats failed, and how
# many of those whose answer had begun.
OUTCOMES: Final = (*MEASURES, "failures")

usage_days = sa.Table(
    "usage_days",
    metadata,
    *(sa.Column(name, _TYPES.get(name, sa.Text), primary_key=True) for name in USAGE_DAY),
    *(sa.Column(name, sa.BigInteger) for name in SUMMED),
    *(sa.Column(name, sa.Text) for name in OUTCOMES),
)

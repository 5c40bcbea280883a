"""The tables of sums, as the migrations create them: what reports are made of."""

from typing import Final

import sqlalchemy as sa

from services.chassis.database.records import columns_of
from services.metering.credit.model_calls import ModelSums
from services.metering.store.schema import metadata

# Sums of the ledger by the model that answered, made of its entries some time after they were written.
MODEL_DAY: Final = ("day_us", "account_id", "class_id", "provider", "model_name")
model_days = sa.Table(
    "model_days",
    metadata,
    *(sa.Column(name, sa.BigInteger if name == "day_us" else sa.Text, primary_key=True) for name in MODEL_DAY),
    *columns_of(ModelSums),
)

# How many chats took how long, in each hour, day and month: of each key, and of all keys together, whose id is empty.
# Made of the ledger like the sums above.
CHAT_TIME: Final = ("account_id", "grain", "key_id", "start_us", "class_id", "measure")
chat_times = sa.Table(
    "chat_times",
    metadata,
    *(sa.Column(name, sa.BigInteger if name == "start_us" else sa.Text, primary_key=True) for name in CHAT_TIME),
    # A JSON object: by bucket of the time, how many chats.
    sa.Column("chats_by_bucket", sa.Text),
)

# The chats that failed, as edges report them. Those that are cut off are charged, too.
FAILURE: Final = ("account_id", "hour_us", "key_id", "class_id", "reason", "is_cut")
_FAILURE_TYPES: Final = {"hour_us": sa.BigInteger, "is_cut": sa.Boolean}
failure_hours = sa.Table(
    "failure_hours",
    metadata,
    *(sa.Column(name, _FAILURE_TYPES.get(name, sa.Text), primary_key=True) for name in FAILURE),
    sa.Column("chats", sa.BigInteger),
)

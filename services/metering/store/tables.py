"""The tables, as the migrations create them."""

from typing import Final

import sqlalchemy as sa

# What a counter of usage counts.
COUNTED: Final = (
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "loss_nanos",
)  # fmt: skip

metadata = sa.MetaData()

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("balance_nanos", sa.BigInteger),
    sa.Column("held_nanos", sa.BigInteger),
    sa.Column("has_spend_limits", sa.Boolean),
    sa.Column("low_balance_nanos", sa.BigInteger),
    sa.Column("owed_nanos", sa.BigInteger),
)

# Columns are the fields of `records.Hold`, in their order.
holds = sa.Table(
    "holds",
    metadata,
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text),
    sa.Column("key_id", sa.Text),
    sa.Column("class_id", sa.Text),
    sa.Column("state", sa.Text),
    sa.Column("amount_nanos", sa.BigInteger),
    sa.Column("price_version", sa.BigInteger),
    sa.Column("deadline_at_us", sa.BigInteger),
    sa.Column("prompt_tokens", sa.BigInteger),
    sa.Column("cached_tokens", sa.BigInteger),
    sa.Column("completion_tokens", sa.BigInteger),
    sa.Column("charged_nanos", sa.BigInteger),
    sa.Column("loss_nanos", sa.BigInteger),
    sa.Column("loss_bound_nanos", sa.BigInteger),
    sa.Column("basis", sa.Text),
    sa.Column("end", sa.Text),
    sa.Column("counted_hour_us", sa.BigInteger),
    sa.Column("reserved_at_us", sa.BigInteger),
    sa.Column("resolved_at_us", sa.BigInteger),
)

# Columns are the fields of `records.Claim`, in their order.
claims = sa.Table(
    "claims",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("key_digest", sa.LargeBinary, primary_key=True),
    sa.Column("body_digest", sa.LargeBinary),
    sa.Column("request_id", sa.Text),
    sa.Column("claimed_at_us", sa.BigInteger),
)

# Columns after the first are the fields of `records.Entry`, in their order.
ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("entry_id", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("account_id", sa.Text),
    sa.Column("customer_nanos", sa.BigInteger),
    sa.Column("recorded_at_us", sa.BigInteger),
    sa.Column("revenue_nanos", sa.BigInteger),
    sa.Column("loss_nanos", sa.BigInteger),
    sa.Column("external_nanos", sa.BigInteger),
    sa.Column("key_id", sa.Text),
    sa.Column("class_id", sa.Text),
    sa.Column("price_version", sa.BigInteger),
    sa.Column("hour_us", sa.BigInteger),
    sa.Column("requests", sa.BigInteger),
    sa.Column("prompt_tokens", sa.BigInteger),
    sa.Column("cached_tokens", sa.BigInteger),
    sa.Column("completion_tokens", sa.BigInteger),
    sa.Column("basis", sa.Text),
    sa.Column("end", sa.Text),
    sa.Column("reason", sa.Text),
)

# The usage of a key and class in an hour.
usage_hours = sa.Table(
    "usage_hours",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("hour_us", sa.BigInteger, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("class_id", sa.Text, primary_key=True),
    *(sa.Column(name, sa.BigInteger) for name in COUNTED),
)

# The sums of all keys. Triggers on `usage_hours` keep them: nothing else writes here.
account_hours = sa.Table(
    "account_hours",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("hour_us", sa.BigInteger, primary_key=True),
    sa.Column("class_id", sa.Text, primary_key=True),
    *(sa.Column(name, sa.BigInteger) for name in COUNTED),
)

# Columns are the fields of `spend.Spend`, in their order.
spends = sa.Table(
    "spends",
    metadata,
    sa.Column("spend_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text),
    sa.Column("key_id", sa.Text),
    sa.Column("day_limit_nanos", sa.BigInteger),
    sa.Column("month_limit_nanos", sa.BigInteger),
    sa.Column("total_limit_nanos", sa.BigInteger),
    sa.Column("day_us", sa.BigInteger),
    sa.Column("month_us", sa.BigInteger),
    sa.Column("day_spent_nanos", sa.BigInteger),
    sa.Column("month_spent_nanos", sa.BigInteger),
    sa.Column("total_spent_nanos", sa.BigInteger),
    sa.Column("held_nanos", sa.BigInteger),
    sa.Column("shared_spend_id", sa.Text),
)

# Columns before the last are the fields of `notices.AccountNotice`, in their order.
notices = sa.Table(
    "notices",
    metadata,
    sa.Column("notice_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text),
    sa.Column("account_id", sa.Text),
    sa.Column("key_id", sa.Text),
    sa.Column("period", sa.Text),
    sa.Column("amount_nanos", sa.BigInteger),
    sa.Column("threshold_nanos", sa.BigInteger),
    sa.Column("recorded_at_us", sa.BigInteger),
    sa.Column("acknowledged_at_us", sa.BigInteger),
)

price_versions = sa.Table(
    "price_versions",
    metadata,
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("effective_from_us", sa.BigInteger),
)

prices = sa.Table(
    "prices",
    metadata,
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("class_id", sa.Text, primary_key=True),
    sa.Column("input_nanos_per_million", sa.BigInteger),
    sa.Column("cached_input_nanos_per_million", sa.BigInteger),
    sa.Column("output_nanos_per_million", sa.BigInteger),
)

# Columns are the fields of `closings.Closing`, in their order.
closings = sa.Table(
    "closings",
    metadata,
    sa.Column("month_us", sa.BigInteger, primary_key=True),
    sa.Column("ends_us", sa.BigInteger),
    sa.Column("entries", sa.BigInteger),
    sa.Column("customer_nanos", sa.BigInteger),
    sa.Column("revenue_nanos", sa.BigInteger),
    sa.Column("loss_nanos", sa.BigInteger),
    sa.Column("external_nanos", sa.BigInteger),
    sa.Column("accounts", sa.BigInteger),
    sa.Column("balance_nanos", sa.BigInteger),
    sa.Column("closed_at_us", sa.BigInteger),
    sa.Column("entries_hash", sa.Text),
    sa.Column("accounts_hash", sa.Text),
    sa.Column("previous_hash", sa.Text),
    sa.Column("closing_hash", sa.Text),
)

# Columns are the fields of `closings.AccountClosing`, in their order.
account_closings = sa.Table(
    "account_closings",
    metadata,
    sa.Column("month_us", sa.BigInteger, primary_key=True),
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("entries", sa.BigInteger),
    sa.Column("granted_nanos", sa.BigInteger),
    sa.Column("adjusted_nanos", sa.BigInteger),
    sa.Column("charged_nanos", sa.BigInteger),
    sa.Column("loss_nanos", sa.BigInteger),
    sa.Column("requests", sa.BigInteger),
    sa.Column("prompt_tokens", sa.BigInteger),
    sa.Column("cached_tokens", sa.BigInteger),
    sa.Column("completion_tokens", sa.BigInteger),
    sa.Column("balance_nanos", sa.BigInteger),
    sa.Column("total_entries", sa.BigInteger),
    sa.Column("total_credited_nanos", sa.BigInteger),
    sa.Column("total_charged_nanos", sa.BigInteger),
)

# Grants and adjustments whose entries were pruned: a repeat, or the reversal of one, must still find them. Columns are
# the first fields of `records.Entry`, in their order.
pruned_credits = sa.Table(
    "pruned_credits",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text),
    sa.Column("customer_nanos", sa.BigInteger),
    sa.Column("recorded_at_us", sa.BigInteger),
    sa.Column("revenue_nanos", sa.BigInteger),
    sa.Column("loss_nanos", sa.BigInteger),
    sa.Column("external_nanos", sa.BigInteger),
)

# Columns are the fields of `records.OwedChange`, in their order.
owed_changes = sa.Table(
    "owed_changes",
    metadata,
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text),
    sa.Column("owed_nanos", sa.BigInteger),
    sa.Column("recorded_at_us", sa.BigInteger),
)

# What auth has not taken over for the audit log yet. Columns are the id and the fields of `changes.AccountChange`.
account_changes = sa.Table(
    "account_changes",
    metadata,
    sa.Column("change_id", sa.Text, primary_key=True),
    sa.Column("action", sa.Text),
    sa.Column("account_id", sa.Text),
    sa.Column("key_id", sa.Text),
    sa.Column("user_id", sa.Text),
    sa.Column("session_id", sa.Text),
    sa.Column("recorded_at_us", sa.BigInteger),
)

# One row.
retention = sa.Table(
    "retention",
    metadata,
    sa.Column("retention_id", sa.Integer, primary_key=True),
    sa.Column("lease_holder", sa.Text),
    sa.Column("lease_until_us", sa.BigInteger),
    # Entries recorded before it are gone, or being deleted.
    sa.Column("ledger_pruned_before_us", sa.BigInteger),
    # Hours before it are summed up by month, or being summed up; and all of them are.
    sa.Column("usage_marked_before_us", sa.BigInteger),
    sa.Column("usage_summed_before_us", sa.BigInteger),
)

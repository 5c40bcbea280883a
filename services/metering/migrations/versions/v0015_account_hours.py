"""Creates the usage of accounts by hour and class: the sums of their counters by key, for accounts with many keys.

Triggers keep the sums, in the transaction that changes a counter: they are right whichever release writes it. Their
first rows are added up here, while writers wait: some seconds for each million counters.
"""

# Names are ours:
# ruff: noqa: S608

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

COUNTED = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "loss_nanos")
KEY = "account_id, hour_us, class_id"
COLUMNS = f"{KEY}, {', '.join(COUNTED)}"
ADDED = ", ".join(f"{name} = account_hours.{name} + excluded.{name}" for name in COUNTED)
ADD = f"INSERT INTO account_hours ({COLUMNS}) VALUES ({{values}}) ON CONFLICT ({KEY}) DO UPDATE SET {ADDED}"
# What each change of a counter adds to the sum.
DIFFERENCES = {"INSERT": "NEW.{0}", "UPDATE": "NEW.{0} - OLD.{0}", "DELETE": "-OLD.{0}"}


def upgrade() -> None:
    op.create_table(
        "account_hours",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("hour_us", sa.BigInteger, primary_key=True),
        sa.Column("class_id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTED),
        sqlite_with_rowid=False,
    )
    is_sqlite = op.get_context().dialect.name == "sqlite"
    for change, difference in DIFFERENCES.items():
        row = "OLD" if change == "DELETE" else "NEW"
        keys = [f"{row}.{name}" for name in KEY.split(", ")]
        add = ADD.format(values=", ".join([*keys, *(difference.format(name) for name in COUNTED)]))
        name = f"usage_hours_count_{change.lower()}"
        if is_sqlite:
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON usage_hours BEGIN {add}; END")
        else:
            op.execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS"
                f" $$ BEGIN {add}; RETURN NULL; END $$"
            )
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON usage_hours FOR EACH ROW EXECUTE FUNCTION {name}()")
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTED)
    op.execute(f"INSERT INTO account_hours ({COLUMNS}) SELECT {KEY}, {sums} FROM usage_hours GROUP BY {KEY}")

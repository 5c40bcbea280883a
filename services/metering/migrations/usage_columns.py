"""Adds a column of usage to every table that has them, and to the triggers that keep the sums of an account's hours."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

_TABLES: Final = ("holds", "ledger", "usage_hours", "account_hours", "usage_days")
_KEY: Final = ("account_id", "hour_us", "class_id")
# What each change of a counter adds to the sum.
_DIFFERENCES: Final = {"INSERT": "NEW.{0}", "UPDATE": "NEW.{0} - OLD.{0}", "DELETE": "-OLD.{0}"}


def add_usage_column(name: str) -> None:
    """Adds a column that has 0 in the rows that there are. Older processes do not name it."""
    for table in _TABLES:
        _add(table, name)
    # What providers count.
    _add("usage_days", f"told_{name}")
    _count_in_account_hours()


def _add(table: str, name: str) -> None:
    op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))


def _count_in_account_hours() -> None:
    connection = op.get_bind()
    columns: list[Any] = sa.inspect(connection).get_columns("account_hours")
    counted = [column["name"] for column in columns if column["name"] not in _KEY]
    added = ", ".join(f"{name} = account_hours.{name} + excluded.{name}" for name in counted)
    for change, difference in _DIFFERENCES.items():
        row = "OLD" if change == "DELETE" else "NEW"
        values = ", ".join([*(f"{row}.{name}" for name in _KEY), *(difference.format(name) for name in counted)])
        into = f"INSERT INTO account_hours ({', '.join((*_KEY, *counted))}) VALUES ({values})"  # noqa: S608
        add = f"{into} ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {added}"
        name = f"usage_hours_count_{change.lower()}"
        if connection.dialect.name == "sqlite":
            op.execute(f"DROP TRIGGER {name}")
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON usage_hours BEGIN {add}; END")
        else:
            function = f"{name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS"
            op.execute(f"CREATE OR REPLACE FUNCTION {function} $$ BEGIN {add}; RETURN NULL; END $$")

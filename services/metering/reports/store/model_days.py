"""Sums up the ledger by day, account, class, provider and model, and reads these sums.

A charge belongs to the model that finished the answer, a call and its cost to the model that was called. Entries are
summed up some minutes after they were written, in the order of their ids, and the last id is noted with the sums: until
then a report adds the entries behind it. So a chat writes nothing for it, and no row is one that all chats wait for.
"""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.model_calls import ModelCall, ModelSums
from services.metering.credit.records import BILLED, CHARGES, DAY_US
from services.metering.credit.store.tables import ledger, retention
from services.metering.reports.store.chat_times import sum_up_times
from services.metering.reports.store.tables import MODEL_DAY
from services.metering.reports.store.tables import model_days as sums_table
from services.metering.store.schema import total

# Longer than any transaction: an entry with a lower id may be committed after one with a higher id.
SETTLED_AFTER_US: Final = 300_000_000
# Written in milliseconds.
PORTION_MOST: Final = 200
# Above every id.
NO_END: Final = 2**63 - 1
# The ids of what payments book begin with it.
_PAYMENT_PREFIX: Final = "stripe-"
SUMMED: Final = ModelSums.__struct_fields__
DAY_OF_ENTRY: Final = f"entry.recorded_at_us - entry.recorded_at_us % {DAY_US}"

# A day, an account, a class, a provider, a model; then the sums.
DayRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """Reads the calls of a hold, or the fields of a call, in one dialect."""

    calls: str
    last_form: str
    text_form: str
    number_form: str

    def of_last(self, field: str) -> str:
        return self.last_form.format(_PLACES[field])

    def text(self, field: str) -> str:
        return self.text_form.format(_PLACES[field])

    def number(self, field: str) -> str:
        return self.number_form.format(_PLACES[field])


_PLACES: Final = {name: place for place, name in enumerate(ModelCall.__struct_fields__)}
_DIALECTS: Final = {
    "sqlite": JsonCalls(
        "json_each(hold.model_calls) AS call",
        "json_extract(hold.model_calls, '$[#-1][{0}]')",
        "json_extract(call.value, '$[{0}]')",
        "json_extract(call.value, '$[{0}]')",
    ),
    "postgresql": JsonCalls(
        "json_array_elements(CAST(hold.model_calls AS json)) AS call(value)",
        "(CAST(hold.model_calls AS json) -> -1 ->> {0})",
        "(call.value ->> {0})",
        "CAST(call.value ->> {0} AS BIGINT)",
    ),
}


def json_calls(dialect: str) -> JsonCalls:
    return _DIALECTS[dialect]


@cache
def expressions(dialect: str) -> "tuple[dict[str, str], dict[str, str]]":
    """Returns what an entry, with its hold, adds to the sums; and what a call adds."""
    json = _DIALECTS[dialect]
    charged, billed = (", ".join(f"'{kind}'" for kind in kinds) for kinds in (CHARGES, BILLED))
    is_charge = f"entry.kind IN ({charged})"
    of_entry = dict.fromkeys(SUMMED, "0") | {
        "requests": "entry.requests",
        **{
            name: f"CASE WHEN {is_charge} THEN entry.{name} ELSE 0 END"
            for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
        },
        "charged_nanos": f"CASE WHEN {is_charge} THEN -entry.customer_nanos ELSE 0 END",
        "lost_nanos": f"CASE WHEN entry.kind IN ({billed}) THEN -entry.loss_nanos ELSE 0 END",
        "granted_nanos": "CASE WHEN entry.kind = 'grant' THEN entry.customer_nanos ELSE 0 END",
        "adjusted_nanos": "CASE WHEN entry.kind = 'adjustment' THEN entry.customer_nanos ELSE 0 END",
        "returned_nanos": "CASE WHEN entry.kind = 'adjustment' AND"
        f" substr(entry.request_id, 1, {len(_PAYMENT_PREFIX)}) = '{_PAYMENT_PREFIX}'"
        " THEN entry.external_nanos ELSE 0 END",
        "costed_nanos": f"CASE WHEN {json.of_last('cost_nanos')} IS NULL THEN 0 ELSE -entry.customer_nanos END",
    }
    cost = json.number("cost_nanos")
    of_call = dict.fromkeys(SUMMED, "0") | {
        "calls": "1",
        "told_prompt_tokens": json.number("prompt_tokens"),
        "told_cached_tokens": json.number("cached_tokens"),
        "cache_write_tokens": json.number("cache_write_tokens"),
        "told_completion_tokens": json.number("completion_tokens"),
        "cost_nanos": f"coalesce({cost}, 0)",
        "uncosted_calls": f"CASE WHEN {cost} IS NULL THEN 1 ELSE 0 END",
    }
    return of_entry, of_call


@cache
def sums_of_entries(dialect: str) -> str:
    """Builds the query for the sums of the entries from `after_id` to `last_id`, with the columns of `model_days`."""
    json, (of_entry, of_call) = _DIALECTS[dialect], expressions(dialect)
    is_charge = "entry.kind IN ({})".format(", ".join(f"'{kind}'" for kind in CHARGES))
    is_meant = "entry.entry_id > :after_id AND entry.entry_id <= :last_id"
    names = ("provider", "model_name")
    terms = (DAY_OF_ENTRY, "entry.account_id", "entry.class_id")
    last = [f"coalesce({json.of_last(name)}, '')" for name in names]
    called = [json.text(name) for name in names]
    keys = ", ".join(MODEL_DAY)
    return (
        f"SELECT {keys}, {', '.join(f'CAST(sum({name}) AS BIGINT) AS {name}' for name in SUMMED)} FROM ("
        f"SELECT {_columns((*terms, *last), of_entry)} FROM ledger AS entry"
        f" LEFT JOIN holds AS hold ON hold.request_id = entry.request_id AND {is_charge} WHERE {is_meant}"
        f" UNION ALL SELECT {_columns((*terms, *called), of_call)} FROM ledger AS entry"
        f" JOIN holds AS hold ON hold.request_id = entry.request_id CROSS JOIN {json.calls}"
        f" WHERE {is_meant} AND entry.requests = 1) AS part GROUP BY {keys}"
    )


def _columns(keys: Iterable[str], sums: dict[str, str]) -> str:
    named = [*zip(keys, MODEL_DAY, strict=True), *((sums[name], name) for name in SUMMED)]
    return ", ".join(f"{expression} AS {name}" for expression, name in named)


_ADDED: Final = ", ".join(f"{name} = model_days.{name} + excluded.{name}" for name in SUMMED)
_NEXT: Final = (
    sa.select(ledger.c.entry_id, ledger.c.recorded_at_us)
    .where(ledger.c.entry_id > sa.bindparam("after_id", type_=sa.BigInteger))
    .order_by(ledger.c.entry_id)
    .limit(sa.bindparam("most"))
    .subquery()
)
_LAST_OF_NEXT: Final = sa.select(sa.func.max(_NEXT.c.entry_id)).where(
    _NEXT.c.recorded_at_us < sa.bindparam("before_us", type_=sa.BigInteger)
)


def sum_up_portion(connection: sa.Connection, most: int, settled_after_us: int = SETTLED_AFTER_US) -> bool:
    """Adds the next entries to the sums; returns False if there are none that are old enough."""
    force_index_plans(connection)
    after_id = read_reported_id(connection)
    before_us = read_now_us(connection) - settled_after_us
    last_id = connection.scalar(_LAST_OF_NEXT, {"after_id": after_id, "most": most, "before_us": before_us})
    if last_id is None:
        return False
    is_found = retention.c.reported_to_id == after_id
    moved = connection.execute(sa.update(retention).where(is_found).values(reported_to_id=last_id))
    # Otherwise another process has just done it.
    if moved.rowcount:
        columns = ", ".join((*MODEL_DAY, *SUMMED))
        add = (
            f"INSERT INTO model_days ({columns}) {sums_of_entries(connection.dialect.name)}"
            f" ON CONFLICT ({', '.join(MODEL_DAY)}) DO UPDATE SET {_ADDED}"
        )
        connection.execute(sa.text(add), {"after_id": after_id, "last_id": last_id})
        sum_up_times(connection, after_id, last_id)
    return True


def read_reported_id(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(retention.c.reported_to_id)) or 0)


def read_summed_us(connection: sa.Connection) -> int:
    """Returns the time of the last entry that was summed up."""
    query = sa.select(ledger.c.recorded_at_us).where(ledger.c.entry_id <= read_reported_id(connection))
    return int(connection.scalar(query.order_by(ledger.c.entry_id.desc()).limit(1)) or 0)


def force_index_plans(connection: sa.Connection) -> None:
    """Has PostgreSQL plan the rest of the transaction with indexes, whatever it thinks of the size of a partition."""
    if connection.dialect.name == "postgresql":
        names = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
        connection.exec_driver_sql("SELECT " + ", ".join(f"set_config('{name}', 'off', true)" for name in names))


class DayFilter(NamedTuple):
    """The rows that a report is about; an empty text: all."""

    start_us: int
    # Exclusive.
    end_us: int
    account_id: str = ""
    class_id: str = ""
    provider: str = ""
    model_name: str = ""


def read_sums(connection: sa.Connection, chosen: DayFilter, groups: Sequence[str], most: int) -> list[DayRow]:
    """Returns rows of the groups, which are columns of `model_days`, and the sums."""
    columns = [sums_table.c[name] for name in groups]
    query = (
        sa.select(*columns, *(total(sums_table.c[name]) for name in SUMMED))
        .where(sums_table.c.day_us >= chosen.start_us, sums_table.c.day_us < chosen.end_us)
        .where(
            *(sums_table.c[name] == value for name, value in chosen._asdict().items() if name in MODEL_DAY and value)
        )
        .group_by(*columns)
        .limit(most)
    )
    return [tuple(row) for row in connection.execute(query)]


def read_recent_sums(connection: sa.Connection, chosen: DayFilter, most: int) -> list[DayRow] | None:
    """Returns the sums of the entries that `model_days` does not have yet, by all of its keys; None if there are more
    than `most` of them."""
    after_id = read_reported_id(connection)
    force_index_plans(connection)
    last = connection.execute(sa.select(_NEXT.c.entry_id), {"after_id": after_id, "most": most + 1}).all()
    if len(last) > most:
        return None
    parameters = {"after_id": after_id, "last_id": NO_END}
    found = connection.execute(sa.text(sums_of_entries(connection.dialect.name)), parameters)
    return [tuple(row) for row in found if _is_chosen(chosen, row[: len(MODEL_DAY)])]


def _is_chosen(chosen: DayFilter, keys: Sequence[Any]) -> bool:
    day_us, *names = keys
    wanted = chosen.account_id, chosen.class_id, chosen.provider, chosen.model_name
    is_named = all(want in ("", name) for want, name in zip(wanted, names, strict=True))
    return chosen.start_us <= day_us < chosen.end_us and is_named

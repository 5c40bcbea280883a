"""The queries of the audit for the sums by model, of the open period: against the entries that they are made of, and
against the requests, which say what models were called."""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from functools import cache
from typing import Final

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.audit.store.checks import AuditScope
from services.metering.credit.records import DAY_US
from services.metering.credit.store.closings import find_last_id_before
from services.metering.reports.store.model_days import DAY_OF_ENTRY, SUMMED, expressions, json_calls

# What only the hold of a request tells.
_OF_CALLS: Final = (
    "costed_nanos", "calls", "told_prompt_tokens", "told_cached_tokens", "cache_write_tokens", "told_completion_tokens",
    "cost_nanos", "uncosted_calls",
)  # fmt: skip
_OF_ENTRIES: Final = tuple(name for name in SUMMED if name not in _OF_CALLS)
_OF_REQUESTS: Final = (
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "charged_nanos", "lost_nanos",
)  # fmt: skip


def recent_scope(connection: sa.Connection, scope: AuditScope) -> AuditScope:
    """Returns the period from the beginning of yesterday on: to compare all of a busy month would double the time of an
    audit."""
    yesterday_us = read_now_us(connection) // DAY_US * DAY_US - DAY_US
    if yesterday_us <= scope.parameters["open_us"]:
        return scope
    period = {"open_us": yesterday_us, "after_id": find_last_id_before(connection, yesterday_us)}
    return scope._replace(parameters=scope.parameters | period)


@cache
def days_against_ledger(dialect: str) -> sa.TextClause:
    """Returns day, account and class whose sums differ from the entries that were summed up."""
    of_entry, _ = expressions(dialect)
    keys = ("day_us", "account_id", "class_id")
    entries = ", ".join(f"-({of_entry[name]})" for name in _OF_ENTRIES)
    return _differing(
        keys,
        _OF_ENTRIES,
        f"SELECT {', '.join((*keys, *_OF_ENTRIES))} FROM model_days WHERE day_us >= :open_us"
        f" UNION ALL SELECT {DAY_OF_ENTRY}, entry.account_id, entry.class_id, {entries} FROM ledger AS entry"
        " WHERE entry.recorded_at_us >= :open_us AND entry.entry_id > :after_id AND entry.entry_id <= :reported_to_id",
    )


@cache
def models_against_holds(dialect: str) -> sa.TextClause:
    """Returns account, class, provider and model whose sums differ from the requests that were summed up. A request
    whose model is known has one charge, which was booked when it was resolved."""
    json, (_, of_call) = json_calls(dialect), expressions(dialect)
    names, sums = ("provider", "model_name"), (*_OF_REQUESTS, *_OF_CALLS)
    of_hold = dict.fromkeys(sums, "0") | {name: f"-hold.{name}" for name in _OF_REQUESTS}
    of_hold |= {
        "requests": "-1",
        "lost_nanos": "-hold.loss_nanos",
        "costed_nanos": f"CASE WHEN {json.of_last('cost_nanos')} IS NULL THEN 0 ELSE -hold.charged_nanos END",
    }
    calls = ", ".join(f"-({of_call[name]})" for name in sums)
    is_meant = (
        "hold.model_calls IS NOT NULL AND hold.resolved_at_us >= :open_us AND hold.request_id NOT IN"
        " (SELECT request_id FROM ledger WHERE entry_id > :reported_to_id)"
    )
    return _differing(
        ("account_id", "class_id", *names),
        sums,
        f"SELECT {', '.join(('account_id', 'class_id', *names, *sums))} FROM model_days"
        " WHERE day_us >= :open_us AND provider <> ''"
        f" UNION ALL SELECT hold.account_id, hold.class_id, {', '.join(json.of_last(name) for name in names)},"
        f" {', '.join(of_hold[name] for name in sums)} FROM holds AS hold WHERE {is_meant}"
        f" UNION ALL SELECT hold.account_id, hold.class_id, {', '.join(json.text(name) for name in names)}, {calls}"
        f" FROM holds AS hold CROSS JOIN {json.calls} WHERE {is_meant}",
    )


def _differing(keys: tuple[str, ...], sums: tuple[str, ...], both: str) -> sa.TextClause:
    differ = " OR ".join(f"sum({name}) <> 0" for name in sums)
    listed = ", ".join(keys)
    return sa.text(f"SELECT {listed} FROM ({both}) AS part GROUP BY {listed} HAVING {differ} ORDER BY {listed}")

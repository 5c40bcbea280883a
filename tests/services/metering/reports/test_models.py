"""Reports across accounts: their sums are those of the ledger, whatever they are divided by."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, combinations
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.model_calls import decode_calls
from services.metering.credit.prices import Prices
from services.metering.credit.records import DAY_US, Grant, Operation, Reserve, ReturnPayment
from services.metering.credit.store.tables import holds, ledger
from services.metering.reports.additions import SUMMED
from services.metering.reports.models import AccountsReport, ReportQuery, read_report
from services.metering.reports.store.days import sum_up_portion
from services.metering.reports.store.failures import Failures, add_failures
from services.metering.reports.store.model_sums import GROUPS, DayFilter
from services.rules.usage import Usage, named
from tests.services.metering.samples import (
    ACCOUNT,
    KEY,
    adjust,
    ask_all,
    ask_each,
    checkpoint,
    grant,
    model_call,
    request_id,
    reserve,
    settle,
    sweep,
    void,
)

LABELS = tuple(GROUPS)
pytestmark = pytest.mark.sqlite_suffices

ACCOUNTS = (ACCOUNT, "acct_bbbbbbbbbbbbbbbb", "acct_cccccccccccccccc")
ALWAYS = DayFilter(0, 50_000 * DAY_US)
# Entries of this moment are old enough.
AT_ONCE_US = -60_000_000


def report(database: Database, *groups: str, chosen: DayFilter = ALWAYS, top_rows: int = 0) -> AccountsReport:
    with database.transaction(writes=False) as connection:
        return read_report(connection, ReportQuery(chosen, groups, top_rows))


def sum_up(database: Database, most: int = 500) -> bool:
    with database.transaction(writes=True) as connection:
        return sum_up_portion(connection, most, AT_ONCE_US)


def story(dice: random.Random, first: int) -> list[Operation[Any]]:
    """Requests of all ends, with none, one or several calls to models whose cost is known or not, and credit."""
    operations: list[Operation[Any]] = []
    for number in range(first, first + 12):
        account, class_id = dice.choice(ACCOUNTS), dice.choice(("forte", "mezzo"))
        reserved = Reserve(request_id(number), account, KEY, class_id, 0, 10)
        calls = [
            model_call(dice.choice(("acme", "blau")), dice.choice(("large", "small")), dice.choice((None, 0, 7, 1_001)))
            for _ in range(dice.choice((0, 1, 1, 1, 2, 3)))
        ]
        settled = settle(
            number, prompt=dice.randrange(9), completion=dice.randrange(1, 90), account=account, calls=calls
        )
        late = [
            checkpoint(number, completion=dice.randrange(3), account=account),
            sweep(number, account=account),
            settled,
        ]
        lost = void(number, account=account, lost=Usage(completion_tokens=dice.randrange(3)))
        operations += [reserved, *dice.choice(([settled], [settled], [settled, settled], late, late[:2], [lost], []))]
        if not dice.randrange(3):
            returned = ReturnPayment(f"stripe-re_{number}", account, dice.randrange(1, 400), "Refund")
            given = Grant(f"g{number}", account, dice.randrange(1, 3_000))
            operations.append(
                dice.choice(
                    (adjust(dice.randrange(1, 50), account=account, adjustment_id=f"a{number}"), given, returned)
                )
            )
    return operations


def expected(database: Database) -> dict[tuple[Any, ...], list[int]]:
    """Sums up the ledger entry by entry, with what holds tell of their calls."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(SUMMED))

    def count(key: tuple[Any, ...], **counts: int) -> None:
        for name, value in counts.items():
            sums[key][SUMMED.index(name)] += value

    with database.transaction(writes=False) as connection:
        kept = {row.request_id: row for row in connection.execute(sa.select(holds))}
        entries = connection.execute(sa.select(ledger)).all()
    for entry in entries:
        terms = (entry.recorded_at_us // DAY_US * DAY_US, entry.account_id, entry.class_id)
        if entry.kind in ("grant", "adjustment"):
            count(
                (*terms, "", ""),
                **{"granted_nanos" if entry.kind == "grant" else "adjusted_nanos": entry.customer_nanos},
            )
            if entry.request_id.startswith("stripe-"):
                count((*terms, "", ""), returned_nanos=entry.external_nanos)
            continue
        text = None if entry.kind == "loss" else kept[entry.request_id].model_calls
        calls = decode_calls(text)
        answered = (calls[-1].provider, calls[-1].model_name) if calls else ("", "")
        count((*terms, *answered), lost_nanos=-entry.loss_nanos)
        if entry.kind == "loss":
            continue
        is_costed = bool(calls) and calls[-1].cost_nanos is not None
        count(
            (*terms, *answered),
            requests=entry.requests,
            **named(entry),
            charged_nanos=-entry.customer_nanos,
            costed_nanos=-entry.customer_nanos if is_costed else 0,
        )
        for call in calls:
            count(
                (*terms, call.provider, call.model_name),
                calls=1,
                **{f"told_{name}": count for name, count in named(call.usage).items()},
                cost_nanos=call.cost_nanos or 0,
                uncosted_calls=call.cost_nanos is None,
            )
    return sums


def grouped(rows: dict[tuple[Any, ...], list[int]], groups: Sequence[str]) -> dict[tuple[Any, ...], list[int]]:
    places = [LABELS.index(name) for name in groups]
    sums: dict[tuple[Any, ...], list[int]] = {}
    for key, added in rows.items():
        group = tuple(key[place] for place in places)
        found = sums.get(group, [0] * len(added))
        sums[group] = [sum(both) for both in zip(found, added, strict=True)]
    return sums


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_rows_of_any_groups_add_up_to_the_ledger(database: Database, prices: Prices, log: Log, seed: int) -> None:
    """Some of the entries are in the sums, some are not yet, and some came late. Of a hold that has just begun the
    deadline is over, so that it can be swept."""
    dice = random.Random(seed)
    writer = Writer(database, prices, -1.0, log)
    await ask_each(writer, *(grant(2_000, account=account, grant_id=f"g-{account}") for account in ACCOUNTS))
    for first in (100, 200, 300):
        for operation in story(dice, first):
            await ask_all(writer, operation)
        sum_up(database, dice.randrange(1, 20))
        assert await audit(database) == []
    await writer.close()
    books = expected(database)
    assert sum(sums[0] for sums in books.values()) > 10
    for groups in chain.from_iterable(combinations(LABELS, size) for size in range(len(LABELS) + 1)):
        found = report(database, *groups)
        rows = {tuple(getattr(row, name) for name in groups): [*row.sums.values()] for row in found.rows}
        assert rows == grouped(books, groups), groups
        assert [*found.total.values()] == grouped(books, ())[()]
    while sum_up(database):
        pass
    assert [*report(database).total.values()] == grouped(books, ())[()]
    assert await audit(database) == []


async def test_charge_belongs_to_the_model_that_answered_and_cost_to_each_that_was_called(
    database: Database, writer: Writer
) -> None:
    calls = [model_call("acme", "large", 900), model_call("blau", "small", None), model_call("acme", "small", 5)]
    await ask_each(writer, grant(1_000), reserve(1), settle(1, prompt=10, completion=3, calls=calls))
    rows = {(row.provider, row.model_name): row.sums for row in report(database, "provider", "model_name").rows}
    # 10 tokens of prompt for 2 nanos each, 3 of output for 10.
    answered = rows["acme", "small"]
    assert (answered["requests"], answered["charged_nanos"], answered["costed_nanos"], answered["cost_nanos"]) == (
        1,
        50,
        50,
        5,
    )
    assert (rows["acme", "large"]["requests"], rows["acme", "large"]["cost_nanos"]) == (0, 900)
    assert (rows["blau", "small"]["cost_nanos"], rows["blau", "small"]["uncosted_calls"]) == (0, 1)
    # The grant.
    assert rows["", ""] == dict.fromkeys(SUMMED, 0) | {"granted_nanos": 1_000}


async def test_what_was_swept_and_then_settled_is_of_an_unknown_model(
    database: Database, prices: Prices, log: Log
) -> None:
    writer = Writer(database, prices, -1.0, log)
    await ask_each(
        writer, grant(1_000), reserve(1), checkpoint(1, completion=2), sweep(1),
        settle(1, completion=5, calls=[model_call()]),
    )  # fmt: skip
    await writer.close()
    [row] = report(database, "provider").rows
    assert (row.provider, row.sums["requests"], row.sums["charged_nanos"], row.sums["calls"]) == ("", 1, 50, 0)


async def test_top_rows_leave_the_sums_of_the_others(database: Database, writer: Writer) -> None:
    for number, account in enumerate(ACCOUNTS, start=1):
        await ask_each(
            writer, grant(1_000, account=account, grant_id=f"g{number}"), reserve(number, account=account),
            settle(number, completion=number, account=account),
        )  # fmt: skip
    found = report(database, "account_id", top_rows=1)
    assert [(row.account_id, row.sums["charged_nanos"]) for row in found.rows] == [(ACCOUNTS[2], 30)]
    assert (found.other_rows, found.others["charged_nanos"], found.total["charged_nanos"]) == (2, 30, 60)


async def test_report_is_of_whole_days_and_of_what_was_chosen(database: Database, writer: Writer) -> None:
    calls = [[model_call("acme")], [model_call("blau")]]
    await ask_each(writer, grant(1_000))
    for number, called in enumerate(calls, start=1):
        await ask_each(writer, reserve(number), settle(number, completion=number, calls=called))
    sum_up(database, 3)
    assert report(database, chosen=ALWAYS._replace(provider="acme")).total["charged_nanos"] == 10
    assert report(database, chosen=ALWAYS._replace(provider="blau")).total["charged_nanos"] == 20
    assert report(database, chosen=ALWAYS._replace(end_us=DAY_US)).total == dict.fromkeys(SUMMED, 0)
    with pytest.raises(LegatoError, match="begins with one day"):
        report(database, chosen=ALWAYS._replace(end_us=DAY_US + 1))


async def test_failures_and_times_make_no_rows(database: Database, writer: Writer) -> None:
    failed = Failures("acct_dddddddddddddddd", 0, KEY, "forte", "SATURATED", is_cut=False, chats=1)
    await database.write(add_failures, [failed])
    done = replace(settle(1, completion=3, calls=[model_call("acme")]), duration_ms=100)
    await ask_each(writer, grant(1_000), reserve(1), done)
    for _ in range(2):
        rows = report(database, "account_id", "class_id", "provider").rows
        assert [(row.account_id, row.class_id, row.provider) for row in rows] == [
            (ACCOUNT, "forte", "acme"), (ACCOUNT, "", ""),
        ]  # fmt: skip
        sum_up(database)

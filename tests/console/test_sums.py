"""Pages over a real ledger: what each of them shows adds up to what the ledger has, to the nano-dollar."""

import asyncio
import csv
import io
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.chassis.money import format_usd
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store import batches
from services.metering.credit.store.tables import ledger
from tests.console.clock import NOW_US
from tests.console.harness import COOKIE, ConsoleHarness
from tests.console.metering import ACCOUNT_ID
from tests.services.metering.samples import (
    adjust,
    ask,
    ask_each,
    checkpoint,
    grant,
    reserve,
    settle,
    sweep,
)

ZONE = "America/Toronto"
DAYS = 40
KEYS = 4
EVERYTHING = "period=custom&from=2020-01-01&to=2199-01-01"


async def fill(database: Database, prices: Any, log: Log, patch: pytest.MonkeyPatch) -> None:
    """Books requests of some keys and classes on many days, late charges and adjustments among them."""
    writer, chance = Writer(database, prices, -1.0, log), random.Random(7)
    clock = {"now_us": NOW_US - DAYS * DAY_US}
    patch.setattr(batches, "now_us_query", lambda connection: f"SELECT {clock['now_us']}")
    await ask(writer, grant(10_000_000_000, account=ACCOUNT_ID))
    for number in range(1, 130):
        clock["now_us"] += chance.randrange(1, 14 * HOUR_US // 2)
        key = f"key_{number % KEYS + 1:016d}"
        wanted = reserve(number, prompt=9, account=ACCOUNT_ID, key=key)
        await ask(writer, replace(wanted, class_id=chance.choice(("forte", "mezzo"))))
        if number % 10 == 0:
            await ask_each(writer, checkpoint(number, completion=1, prompt=9, account=ACCOUNT_ID))
            clock["now_us"] += 1
            await ask(writer, sweep(number, account=ACCOUNT_ID))
            clock["now_us"] += 9 * HOUR_US
        cached, completion = chance.randrange(9), chance.randrange(2, 300)
        await ask(writer, settle(number, account=ACCOUNT_ID, prompt=9, cached=cached, completion=completion))
        if number % 30 == 0:
            await ask(
                writer, adjust(chance.choice((-70, 95)), account=ACCOUNT_ID, adjustment_id=f"adjustment-{number}")
            )
    await writer.close()
    assert clock["now_us"] < NOW_US


class Ledger:
    def __init__(self, database: Database) -> None:
        with database.transaction(writes=False) as connection:
            query = sa.select(ledger).where(ledger.c.account_id == ACCOUNT_ID).order_by(ledger.c.entry_id)
            self.entries: list[Any] = list(connection.execute(query))

    @property
    def balance_nanos(self) -> int:
        return sum(entry.customer_nanos for entry in self.entries)

    def charged_nanos(self, **fields: str) -> int:
        charges = [entry for entry in self.entries if entry.kind in ("charge", "late_charge")]
        wanted = set(fields.items())
        charged: int = -sum(each.customer_nanos for each in charges if wanted <= each._asdict().items())
        return charged


@pytest.fixture(scope="module")
def books_console() -> Iterator[tuple[ConsoleHarness, Ledger]]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    harness = ConsoleHarness(folder)
    metering = harness.metering
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(fill(metering.database, metering.prices, Log("metering", io.StringIO()), patch))
    harness.start()
    for number in range(KEYS):
        harness.auth.add_key(f"Key {number}" if number else "=cmd()")
    yield harness, Ledger(metering.database)
    harness.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def console(books_console: tuple[ConsoleHarness, Ledger]) -> ConsoleHarness:
    return books_console[0]


@pytest.fixture
def book(books_console: tuple[ConsoleHarness, Ledger]) -> Ledger:
    return books_console[1]


def open_page(console: ConsoleHarness, path: str) -> str:
    session = console.auth.sign_in()
    answer = console.get(path, headers={"Cookie": f"{COOKIE}={session}; legato-zone={ZONE}"})
    assert answer.status == 200, answer.text
    return answer.text


def file_of(console: ConsoleHarness, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(open_page(console, path))))


def nanos(usd: str) -> int:
    return int(Decimal(usd) * 10**9)


def amounts(markup: str) -> list[int]:
    return [nanos(value) for value in re.findall(r'<data value="([^"]+)"', markup)]


def table(text: str, caption: str) -> str:
    """The body of the table with a caption."""
    found: list[str] = re.findall(rf">{caption}</caption>.*?<tbody>(.*?)</tbody>", text, re.DOTALL)
    [body] = found
    return body


def all_pages(console: ConsoleHarness, path: str) -> Iterator[str]:
    while True:
        text = open_page(console, path)
        yield text
        following = re.search(r'href="([^"]+)" rel="next"', text)
        if following is None:
            return
        path = following[1].replace("&amp;", "&")


@pytest.mark.parametrize("by", ["class", "key", "member"])
def test_usage_adds_up_to_the_charges(console: ConsoleHarness, book: Ledger, by: str) -> None:
    text = open_page(console, f"/usage?{EVERYTHING}&by={by}&keys=all")
    charged = book.charged_nanos()
    assert f"Exactly ${Decimal(charged).scaleb(-9):.9f}".rstrip("0") in text
    assert sum(amounts(table(text, f"Usage by {by}"))) == charged
    assert sum(amounts(table(text, "Usage over time"))) == charged
    legend = re.findall(r"<ul class=\"legend\">(.*?)</ul>", text, re.DOTALL)
    assert sum(amounts(legend[0])) == charged
    requests = len({entry.request_id for entry in book.entries if entry.price_version})
    assert f'<span class="figure">{requests:,}</span>' in text


def test_usage_of_one_key_is_that_key_s(console: ConsoleHarness, book: Ledger) -> None:
    key_id = f"key_{2:016d}"
    text = open_page(console, f"/usage?{EVERYTHING}&by=class&keys={key_id}")
    assert sum(amounts(table(text, "Usage by class"))) == book.charged_nanos(key_id=key_id) > 0


def test_the_file_of_usage_is_exact_by_key_and_class(console: ConsoleHarness, book: Ledger) -> None:
    rows = file_of(console, f"/usage.csv?{EVERYTHING}&keys=all")
    for number in range(1, KEYS + 1):
        for class_id in ("forte", "mezzo"):
            fields = {"key_id": f"key_{number:016d}", "class_id": class_id}
            found = [row for row in rows if (row["key_id"], row["class"]) == tuple(fields.values())]
            assert sum(nanos(row["cost_usd"]) for row in found) == book.charged_nanos(**fields) > 0
            assert sum(int(row["cost_nanos"]) for row in found) == book.charged_nanos(**fields)
    assert {row["start"][10:19] for row in rows} == {"T00:00:00"}
    # No program for tables may take a name for a formula.
    assert {row["key_name"] for row in rows} == {"'=cmd()", "Key 1", "Key 2", "Key 3"}


def test_requests_add_up_to_the_charges_and_every_receipt_agrees(console: ConsoleHarness, book: Ledger) -> None:
    total, ids = 0, []
    for text in all_pages(console, "/requests?keys=all"):
        body = table(text, "Charged requests")
        total += sum(amounts(body))
        ids += re.findall(r'href="/requests/([0-9a-f]{32})"', body)
    assert total == book.charged_nanos()
    assert len(ids) == len(set(ids)) == len({entry.request_id for entry in book.entries if entry.price_version})
    for request_id in ids[::25]:
        text = open_page(console, f"/requests/{request_id}")
        assert "it agrees with the ledger" in text
        charged = book.charged_nanos(request_id=request_id)
        assert f"Exactly ${Decimal(charged).scaleb(-9):.9f}".rstrip("0") in text
    rows = file_of(console, "/requests.csv?keys=all")
    assert [row["request_id"] for row in rows] == ids
    assert sum(nanos(row["charged_usd"]) for row in rows) == total


def test_requests_of_a_key_are_that_key_s(console: ConsoleHarness, book: Ledger) -> None:
    key_id = f"key_{3:016d}"
    pages = all_pages(console, f"/requests?keys={key_id}&class=forte")
    total = sum(sum(amounts(table(text, "Charged requests"))) for text in pages)
    assert total == book.charged_nanos(key_id=key_id, class_id="forte") > 0


def test_the_statement_of_all_months_ends_at_the_balance(console: ConsoleHarness, book: Ledger) -> None:
    path, changes, opening = "/credit", 0, None
    for _ in range(4):
        text = open_page(console, path)
        body = table(text, "Statement by day, the newest first")
        rows = [amounts(row) for row in body.split("</tr>") if amounts(row)]
        [closing], *days, [before] = rows
        if opening is None:
            assert closing == book.balance_nanos
            assert f'value="{Decimal(closing).scaleb(-9):.9f}"'.rstrip('0"') in text
        else:
            assert closing == opening
        # Each row begins with the balance at which the one below it ends.
        balances = [*(row[1] for row in days), before]
        assert closing == balances[0]
        assert [row[1] - row[0] for row in days] == balances[1:]
        changes += sum(row[0] for row in days)
        opening = before
        [path] = re.findall(r'aria-label="Months"><a class="button" href="([^"]+)"', text)
    assert opening == 0
    assert changes == book.balance_nanos


def test_what_was_spent_this_month_and_by_the_same_day_of_the_last_is_what_the_ledger_has(
    console: ConsoleHarness, book: Ledger
) -> None:
    zone, today = ZoneInfo(ZONE), date(2026, 10, 28)
    charges = [entry for entry in book.entries if entry.kind in ("charge", "late_charge")]
    days = [datetime.fromtimestamp(each.recorded_at_us / 1e6, zone).date() for each in charges]
    spent, before = (
        -sum(
            charge.customer_nanos
            for charge, day in zip(charges, days, strict=True)
            if date(2026, month, 1) <= day <= today.replace(month=month)
        )
        for month in (10, 9)
    )
    assert before > spent > 0
    shown = [f'<data value="{format_usd(nanos)}">' for nanos in (spent, before - spent, before)]
    for path in ("/", "/credit"):
        text = open_page(console, path)
        sentence = re.findall(r"<p>\s*(<data[^\n]* was spent this month so far.*)", text)[0]
        assert re.findall(r"<data[^>]*>", sentence) == shown
        assert "less than in the same days of the month before" in sentence
        assert "1\N{EN DASH}28 September 2026" in sentence


def test_entries_are_those_of_the_ledger_with_the_balance_after_each(console: ConsoleHarness, book: Ledger) -> None:
    shown: list[list[int]] = []
    for text in all_pages(console, "/credit/entries"):
        body = table(text, "Entries, each with the balance after it")
        shown += [amounts(row)[-2:] for row in body.split("</tr>") if amounts(row)]
    balance, expected = 0, []
    for entry in book.entries:
        balance += entry.customer_nanos
        expected.append([entry.customer_nanos, balance])
    assert shown == expected[::-1]
    rows = file_of(console, "/credit.csv")
    assert [[int(row["amount_nanos"]), nanos(row["balance_usd"])] for row in rows] == expected[::-1]


def test_verifying_proves_the_same_balance(console: ConsoleHarness, book: Ledger) -> None:
    answer = console.post("/credit/verify", session=console.auth.sign_in())
    while "Your ledger is being verified" in answer.text:
        # As the page does by itself, on a machine that is busy.
        answer = console.post("/credit/verify", session=console.auth.sign_in())
    assert "Your ledger adds up" in answer.text
    assert f"{len(book.entries)} of them" in answer.text
    assert f"make the balance, ${format_usd(book.balance_nanos)}." in answer.text

"""Usage of a period, by class, key and member."""

import csv
import io
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from legato_protos.metering.v1 import metering_pb2
from services.rules.usage import Usage
from tests.console.backends import not_answering
from tests.console.harness import COOKIE, ConsoleHarness
from tests.console.metering import charge_of, settled


@pytest.mark.parametrize("path", ["/usage", "/requests"])
def test_a_page_without_metering_says_so(console: ConsoleHarness, path: str) -> None:
    console.backends.fill()
    names = ("MeteringService.ListUsage", "MeteringService.GetBalance", "StatementService.ListLedgerDays")
    console.backends.fail = {name: not_answering() for name in (*names, "StatementService.ListRequests")}
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 200
    assert re.search("is not answering|cannot be shown right now", answer.text)


def test_the_zone_of_the_reader_reaches_metering(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    cookie = {"Cookie": f"{COOKIE}={session}; legato-zone=America/Toronto"}
    assert "Days are those of America/Toronto" in console.get("/usage", headers=cookie).text
    zones = {request.time_zone for request in console.backends.requests if hasattr(request, "time_zone")}
    assert zones == {"America/Toronto"}
    assert "Days are UTC." in console.get("/usage", session).text


def test_a_period_with_too_many_rows_is_read_in_parts(console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    console.backends.fill()
    # Less than the period has.
    monkeypatch.setattr("services.metering.reports.usage.ROWS_MOST", 30)
    answer = console.get("/usage.csv?period=30", console.auth.sign_in())
    asked = [request for request in console.backends.requests if isinstance(request, metering_pb2.ListUsageRequest)]
    assert len(asked) > 1
    rows = csv.DictReader(io.StringIO(answer.text))
    assert sum(int(row["cost_nanos"]) for row in rows) == console.metering.charged_nanos()


def test_usage_by_key_has_the_most_expensive_ones_and_one_row_for_all_others(console: ConsoleHarness) -> None:
    console.backends.add_many_keys(150)
    text = console.get("/usage?by=key", console.auth.sign_in()).text
    table = text[text.index("Usage by key") :]
    table = table[: table.index("</table>")]
    # The cost of each is higher than that of the one before.
    listed = re.findall(r'<th scope="row">([^<]+)<', table)
    assert listed == [*(f"Service {number:04d}" for number in reversed(range(100, 150))), "100 other keys", "Total"]
    assert "The keys with the highest costs are listed" in text
    legend = re.findall(r"</span>([^<]+) <strong>", text)
    assert legend == [*(f"Service {number:04d}" for number in (149, 148, 147, 146)), "Others"]
    [total] = re.findall(r"Exactly \$([0-9.]+)", text)
    assert total == f"{console.metering.charged_nanos() / 1e9:.9f}".rstrip("0")


def test_usage_by_member_tells_whose_the_most_expensive_keys_are(console: ConsoleHarness) -> None:
    console.backends.add_many_keys(250)
    text = console.get("/usage?by=member", console.auth.sign_in()).text
    assert "150 other keys" in text
    assert "it is told whose they are" in text
    assert re.findall(r"</span>([^<]+) <strong>", text) == ["All keys"]


def test_keys_of_the_same_name_are_told_apart(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.change_key("key_0000000000000002", name="Nightly report")
    text = console.get("/usage?by=key", console.auth.sign_in()).text
    assert "Nightly report · 0001" in text
    assert "Nightly report · 0002" in text


def test_what_is_charged_while_a_page_is_read_makes_no_negative_part(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.backends.fill()
    note, asked = console.backends.note, []

    def charge_before_the_third(name: str, request: Any) -> None:
        if isinstance(request, metering_pb2.ListUsageRequest):
            asked.append(request)
            if len(asked) == 3:
                console.metering.add_charges(["key_0000000000000001"])
        note(name, request)

    monkeypatch.setattr(console.backends, "note", charge_before_the_third)
    text = console.get("/usage?by=key", console.auth.sign_in()).text
    assert len(asked) == 3
    assert re.findall(r'</span>([^<]+) <strong><data value="-', text) == []


def test_classes_are_listed_by_their_costs(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get("/usage", console.auth.sign_in()).text
    table = text[text.index("Usage by class") :]
    listed = re.findall(r'<th scope="row">([^<]+)<', table[: table.index("</table>")])
    assert listed == ["fortissimo", "forte", "mezzo", "Total"]


def test_every_amount_is_written_as_in_french(console: ConsoleHarness) -> None:
    """Also one that is the same on every page, which a template would compute once, in English."""
    console.backends.fill()
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-language=fr"}
    text = console.get("/usage", headers=cookie).text
    assert re.findall(r"\$[0-9]", text) == []
    assert "Coût par classe" in text


def test_each_of_two_hours_of_the_same_name_has_what_was_charged_in_it(console: ConsoleHarness) -> None:
    """The clock of Toronto went back from two to one o'clock in the night of 2 November 2025."""
    console.backends.fill()
    at_us = int(datetime(2025, 11, 2, 5, 30, tzinfo=UTC).timestamp()) * 1_000_000
    hold = settled(20_000, Usage(1_000_000), at_us, "key_0000000000000001", class_id="mezzo")
    console.metering.write([charge_of(hold)], [hold])
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-zone=America/Toronto"}
    text = console.get("/usage?period=custom&from=2025-11-02&to=2025-11-02", headers=cookie).text
    [cost] = re.findall(r'class="figure"><data value="([0-9.]+)"', text)
    assert re.findall(r'mezzo <strong><data value="([0-9.]+)"', text) == [cost]
    over_time = text[text.rindex(">Usage over time<") :].partition("</table>")[0]
    assert re.findall(r'<th scope="row">([^<]+)<', over_time) == ["2 November 2025, 01:00", "Total"]

"""Failed requests by reason, and how long answers took, of an account and of nobody else."""

import re
from datetime import UTC, datetime

from console.display.error_words import error_words
from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from tests.console.backends import not_answering
from tests.console.clock import NOW
from tests.console.harness import COOKIE, ConsoleHarness

PATH = "/errors-and-speed"


def figures_of(text: str) -> list[str]:
    return re.findall(r'class="figure">([^<]*)<', text.replace("&nbsp;", " "))


def test_failed_requests_are_told_by_reason_with_what_to_do_the_most_frequent_first(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get(PATH, console.auth.sign_in()).text
    listed = text[text.index("Reason, and what to do") :]
    rows = re.findall(
        r'<th scope="row">([^<]+)<span class="second-line">([^<]+)</span></th><td class="number">(\d+)', listed
    )[:4]
    assert [(meaning, int(count)) for meaning, _advice, count in rows] == [
        (error_words("RATE_LIMITED").meaning, 14),
        (error_words("UPSTREAM_FAILED").meaning, 3),
        ("The client left before the answer had ended", 2),
        (error_words("REQUEST_INVALID").meaning, 1),
    ]
    assert "2 charged in part" in listed
    assert all(advice for _meaning, advice, _count in rows)


def test_figures_agree_with_each_other_and_with_those_of_usage(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    text, usage = console.get(PATH, session).text, console.get("/usage", session).text
    requests, failed, first_token, duration = figures_of(text)
    [charged] = re.findall(r"(\d+) of them charged", text)
    assert charged == re.findall(r'class="figure">(\d+)<', usage)[0]
    # Of 20 that failed, two are charged, too.
    assert (int(requests), failed) == (int(charged) + 18, "20")
    for figure in (first_token, duration):
        assert re.fullmatch(r"\d+\.\d+ s", figure)
    for caption in ("Errors and speed by class", "Errors and speed by key", "Errors and speed over time"):
        table = text[text.rindex(f">{caption}<") :].partition("</table>")[0]
        counts = re.findall(r'<td class="number wide-only">(\d+)</td><td class="number">(\d+)', table)
        assert [sum(map(int, column)) for column in zip(*counts, strict=True)] == [int(requests), 20]


def test_one_key_is_told_alone(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get(f"{PATH}?keys=key_0000000000000002", console.auth.sign_in()).text
    assert figures_of(text)[1] == "3"
    assert error_words("RATE_LIMITED").meaning not in text


def test_parts_are_the_hours_days_and_months_of_the_reader(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    cookie = {"Cookie": f"{COOKIE}={session}; legato-zone=America/Toronto"}
    for query, parts in (("today", 24), ("30", 30), ("custom&from=2026-01-10&to=2026-11-01", 10)):
        console.backends.requests.clear()
        assert console.get(f"{PATH}?period={query}", headers=cookie).status == 200
        [asked] = [each for each in console.backends.requests if isinstance(each, pb.GetChatOutcomesRequest)]
        assert len(asked.start_times) == parts, query
        # Five or four hours behind UTC.
        assert asked.start_times[0].seconds // 3600 % 24 in (4, 5), query
        seconds = [each.seconds for each in (*asked.start_times, asked.end_time)]
        assert seconds == sorted(set(seconds)), query


def test_each_of_two_hours_of_the_same_name_has_what_failed_in_it(console: ConsoleHarness) -> None:
    """The clock of Toronto went back from two to one o'clock in the night of 2 November 2025."""
    console.backends.fill()
    for hour, failed in ((5, 2), (6, 3)):
        ago = NOW - datetime(2025, 11, 2, hour, 30, tzinfo=UTC)
        console.metering.fail("key_0000000000000001", "RATE_LIMITED", failed, days=ago.total_seconds() / 86_400)
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-zone=America/Toronto"}
    text = console.get(f"{PATH}?period=custom&from=2025-11-02&to=2025-11-02", headers=cookie).text
    table = text[text.rindex(">Errors and speed over time<") :].partition("</table>")[0]
    rows = re.findall(r'<th scope="row">([^<]+)<.*?</th><td class="number wide-only">(\d+)', table)
    assert rows == [("2 November 2025, 01:00", "3"), ("2 November 2025, 01:00", "2")]
    titles = re.findall(r"<title>([^<]+01:00: [^<]+)</title>", text)
    assert titles == ["2 November 2025, 01:00: 2", "2 November 2025, 01:00: 3"]


def test_a_page_without_metering_says_so_and_one_without_requests_too(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    console.backends.fail = {"ChatOutcomeService.GetChatOutcomes": not_answering()}
    assert "cannot be shown right now" in console.get(PATH, session).text
    console.backends.fail = {}
    console.metering.reset()
    assert "No requests in this period" in console.get(PATH, session).text


def test_the_page_speaks_french(console: ConsoleHarness) -> None:
    console.backends.fill()
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-language=fr"}
    text = console.get(PATH, headers=cookie).text
    assert "Erreurs et rapidité" in text
    assert "Failed" not in text

import json
from datetime import UTC, datetime, timedelta

import pytest

from cli.commands.ledger.usage import default_start, round_down, round_up
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.usage import COLUMNS, counts_of, named
from tests.cli.played import Played, play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
USED = Usage(prompt_tokens=100, cached_tokens=10, completion_tokens=50, cache_write_tokens=7, reasoning_tokens=20)


def played_rows(*rows: metering_pb2.UsageRow) -> Played:
    return play(KNOWN, ("metering", "MeteringService.ListUsage", metering_pb2.ListUsageResponse(rows=rows)))


def row(hour: int, **fields: str) -> metering_pb2.UsageRow:
    made = metering_pb2.UsageRow(
        requests=2,
        usage=USED,
        cost_nanos=279_500,
        **fields,  # type: ignore[arg-type]
    )
    made.start_time.FromDatetime(datetime(2026, 11, 15, hour, tzinfo=UTC))
    return made


def test_rows_are_as_they_are_promised() -> None:
    far_end = played_rows(row(7, class_id="forte", key_id="key_1"), row(8, class_id="mezzo", key_id="key_1"))
    shown = json.loads(far_end.run("usage", "--account", "acct_1", "--group", "key,class", "--json").stdout)
    assert shown[0] == {
        "start": "2026-11-15T07:00:00Z",
        "class": "forte",
        "key_id": "key_1",
        "requests": 2,
        **named(USED),
        "cost_nanos": 279_500,
    }
    assert [one["start"] for one in shown] == ["2026-11-15T07:00:00Z", "2026-11-15T08:00:00Z"]
    assert far_end.requests[1].group_by_key
    assert far_end.requests[1].group_by_class


def test_rows_that_add_up_every_key_and_class_name_none() -> None:
    far_end = played_rows(row(7))
    (shown,) = json.loads(far_end.run("usage", "--account", "acct_1", "--json").stdout)
    assert shown["class"] is None
    assert shown["key_id"] is None
    assert not far_end.requests[1].group_by_key
    assert not far_end.requests[1].group_by_class


def test_rows_of_a_caller_are_added_up_exactly_and_those_of_keys_have_none() -> None:
    callers = [auth_pb2.CallerKey(key_id=f"key_{number}", caller="bot") for number in (2, 3)]
    rows = [row(hour, class_id="forte", key_id=f"key_{number}") for hour in (7, 8) for number in (1, 2, 3, 4)]
    known = ("auth", "AuthService.ListCallerKeys", auth_pb2.ListCallerKeysResponse(keys=callers))
    listed = ("metering", "MeteringService.ListUsage", metering_pb2.ListUsageResponse(rows=rows))
    script = (KNOWN, listed, known)
    far_end = play(*script)
    shown = json.loads(far_end.run("usage", "--account", "acct_1", "--group", "caller,class", "--json").stdout)
    assert [(one["start"][11:13], one["caller"], one["key_id"]) for one in shown] == [
        ("07", None, None), ("07", "bot", None), ("08", None, None), ("08", "bot", None),
    ]  # fmt: skip
    assert shown[1] == {
        "start": "2026-11-15T07:00:00Z",
        "class": "forte",
        "key_id": None,
        "caller": "bot",
        "requests": 4,
        **{name: 2 * count for name, count in named(USED).items()},
        "cost_nanos": 559_000,
    }
    assert sum(one["cost_nanos"] for one in shown) == sum(one.cost_nanos for one in rows)
    assert (far_end.requests[1].group_by_key, far_end.requests[1].group_by_class) == (True, True)
    by_both = json.loads(play(*script).run("usage", "--account", "acct_1", "--group", "caller,key", "--json").stdout)
    assert [(one["key_id"], one["caller"]) for one in by_both[:3]] == [
        ("key_1", None), ("key_2", "bot"), ("key_3", "bot"),
    ]  # fmt: skip
    lines = play(*script).run("usage", "--account", "acct_1", "--group", "caller", "--csv").stdout.splitlines()
    assert lines[0].startswith("start,class,key_id,caller,requests,")
    assert lines[2].startswith("2026-11-15T07:00:00Z,forte,,bot,4,")


def test_without_a_span_it_is_the_last_24_hours_by_hour() -> None:
    before = datetime.now(UTC)
    far_end = played_rows()
    far_end.run("usage", "--account", "acct_1")
    request = far_end.requests[1]
    start, end = request.start_time.ToDatetime(tzinfo=UTC), request.end_time.ToDatetime(tzinfo=UTC)
    after = datetime.now(UTC)
    # In whole hours: the one that runs is in it, and the one that ran then.
    assert start <= after - timedelta(hours=24)
    assert before - timedelta(hours=25) < start
    assert before <= end < after + timedelta(hours=1)
    assert start == round_down(start)
    assert end == round_down(end)
    assert request.bucket == metering_pb2.USAGE_BUCKET_HOUR


def test_dates_and_times_are_rounded_out_to_whole_hours() -> None:
    far_end = played_rows()
    far_end.run(
        "usage", "--account", "acct_1", "--from", "2026-11-01", "--to", "2026-11-02T10:30:00+02:00", "--by", "day"
    )
    request = far_end.requests[1]
    assert request.start_time.ToDatetime(tzinfo=UTC) == datetime(2026, 11, 1, tzinfo=UTC)
    assert request.end_time.ToDatetime(tzinfo=UTC) == datetime(2026, 11, 2, 9, tzinfo=UTC)
    assert request.bucket == metering_pb2.USAGE_BUCKET_DAY


@pytest.mark.parametrize("groups", [["--group", "key,class"], ["--group", "key", "--group", "class"]])
def test_groups_may_be_named_together_or_one_after_the_other(groups: list[str]) -> None:
    far_end = played_rows()
    assert far_end.run("usage", "--account", "acct_1", *groups).exit_code == 0
    assert far_end.requests[1].group_by_key
    assert far_end.requests[1].group_by_class


@pytest.mark.parametrize(
    "span",
    [
        ["--from", "0001-01-01T00:00:00+05:00"],
        ["--from", "2026-11-01", "--to", "9999-12-31T23:30:00Z"],
        ["--from", "2026-11-01", "--to", "9999-12-31T23:30:00-05:00"],
        ["--to", "0001-01-02"],
        ["--to", "0001-01-02", "--by", "day"],
    ],
)
def test_spans_may_reach_to_where_the_calendar_ends(span: list[str]) -> None:
    assert played_rows().run("usage", "--account", "acct_1", *span).exit_code == 0


def test_people_see_dollars() -> None:
    lines = played_rows(row(7, class_id="forte")).run("usage", "--account", "acct_1").stdout.splitlines()
    tokens = [column.removesuffix("_tokens") for column in COLUMNS]
    assert lines[0].split() == ["start", "class", "key_id", "requests", *tokens, "cached_share", "cost_usd"]
    counts = map(str, counts_of(USED))
    assert lines[1].split() == ["2026-11-15T07:00:00Z", "forte", "-", "2", *counts, "10.0%", "0.0002795"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--account", "acct_1", "--from", "yesterday"],
        ["--account", "acct_1", "--from", "2026-13-01"],
        ["--account", "acct_1", "--from", "2026-11-01T10:00:00"],
        ["--account", "acct_1", "--from", "2026-11-02", "--to", "2026-11-01"],
        ["--account", "acct_1", "--by", "minute"],
        ["--account", "acct_1", "--group", "colour"],
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = play().run("usage", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("legato: ")
    assert result.stderr.count("\n") == 1


def test_whole_hours_stay_as_they_are() -> None:
    whole = datetime(2026, 11, 15, 8, tzinfo=UTC)
    assert round_down(whole) == round_up(whole) == whole
    assert round_up(whole.replace(microsecond=1)) == datetime(2026, 11, 15, 9, tzinfo=UTC)


def test_days_begin_at_midnight() -> None:
    assert default_start(datetime(2026, 11, 15, 8, tzinfo=UTC), "day") == datetime(2026, 10, 16, tzinfo=UTC)


def test_csv_is_exact() -> None:
    far_end = played_rows(row(7, class_id="forte", key_id="key_1"))
    lines = far_end.run("usage", "--account", "acct_1", "--group", "key,class", "--csv").stdout.splitlines()
    assert lines == [
        f"start,class,key_id,requests,{','.join(COLUMNS)},cost_usd,cost_nanos",
        f"2026-11-15T07:00:00Z,forte,key_1,2,{','.join(map(str, counts_of(USED)))},0.0002795,279500",
    ]


def test_period_that_is_too_long_for_an_answer_is_asked_for_in_halves() -> None:
    too_long = LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("The period is too long."), param="start_time")
    listing = "MeteringService.ListUsage"
    answers = [metering_pb2.ListUsageResponse(rows=[row(hour)]) for hour in (7, 8, 9)]
    far_end = play(
        KNOWN,
        *(("metering", listing, answer) for answer in (too_long, answers[0], too_long, answers[1], answers[2])),
    )
    times = ("--from", "2026-11-15T00:00:00Z", "--to", "2026-11-15T08:00:00Z")
    shown = json.loads(far_end.run("usage", "--account", "acct_1", *times, "--json").stdout)
    assert [each["start"][11:13] for each in shown] == ["07", "08", "09"]
    hours = [(ask.start_time.ToDatetime().hour, ask.end_time.ToDatetime().hour) for ask in far_end.requests[1:]]
    assert hours == [(0, 8), (0, 4), (4, 8), (4, 6), (6, 8)]


def test_hour_that_is_too_long_for_an_answer_is_refused() -> None:
    too_long = LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("The period is too long."), param="start_time")
    far_end = play(KNOWN, ("metering", "MeteringService.ListUsage", too_long))
    times = ("--from", "2026-11-15T00:00:00Z", "--to", "2026-11-15T01:00:00Z")
    assert far_end.run("usage", "--account", "acct_1", *times).exit_code == 1

import pytest

from edge.api.usage import DAY_S, HOUR_S, parse_query
from services.chassis.errors import LegatoError, Reason

NOON_S = 1_700_049_600 - 1_700_049_600 % DAY_S + 12 * HOUR_S


def test_nothing_asked_is_the_last_day_by_the_hour() -> None:
    query = parse_query({}, NOON_S + 600)
    assert query.start_s == NOON_S - DAY_S
    assert query.end_s == NOON_S + HOUR_S
    assert query.page_end_s == query.end_s


def test_buckets_are_whole() -> None:
    asked = {"start_time": [str(NOON_S + 5)], "end_time": [str(NOON_S + DAY_S)], "bucket_width": ["1d"]}
    query = parse_query(asked, NOON_S)
    assert query.start_s % DAY_S == query.end_s % DAY_S == 0
    assert query.start_s <= NOON_S + 5
    assert query.end_s >= NOON_S + DAY_S


def test_next_page_goes_on_where_the_last_one_ended() -> None:
    first = parse_query({"limit": ["10"]}, NOON_S)
    second = parse_query({"limit": ["10"], "page": [str(first.page_end_s)]}, NOON_S)
    assert second.start_s == first.page_end_s == first.start_s + 10 * HOUR_S


@pytest.mark.parametrize(
    "parameters", [{"group_by": ["model,key"]}, {"group_by": ["model", "key"]}, {"group_by[]": ["model", "key"]}]
)
def test_groups_are_taken_in_every_form(parameters: dict[str, list[str]]) -> None:
    assert parse_query(parameters, NOON_S).group_by == {"model", "key"}


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"start_time": ["yesterday"]}, "start_time"),
        ({"start_time": ["-5"]}, "start_time"),
        ({"start_time": ["9" * 30]}, "start_time"),
        ({"start_time": [str(NOON_S)], "end_time": [str(NOON_S)]}, "start_time"),
        ({"bucket_width": ["1m"]}, "bucket_width"),
        ({"bucket_width": [""]}, "bucket_width"),
        ({"group_by": ["city"]}, "group_by"),
        ({"limit": ["0"]}, "limit"),
        ({"limit": ["169"]}, "limit"),
        ({"limit": ["1", "2"]}, "limit"),
        ({"page": ["12"]}, "page"),
        ({"page": [str(NOON_S - 1)]}, "page"),
        ({"account": ["acct_other"]}, None),
    ],
)
def test_what_cannot_be_meant_is_refused(parameters: dict[str, list[str]], param: str | None) -> None:
    with pytest.raises(LegatoError) as refused:
        parse_query(parameters, NOON_S)
    assert refused.value.reason is Reason.REQUEST_INVALID
    assert refused.value.param == param


def test_the_last_day_does_not_begin_before_1970() -> None:
    query = parse_query({"end_time": [str(HOUR_S)]}, NOON_S)
    assert (query.start_s, query.end_s) == (0, HOUR_S)

import json

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import spend_limits_pb2 as pb
from tests.cli.played import Played, play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
SPEND = pb.Spend(
    account_id="acct_1",
    key_id="key_1",
    limits=pb.SpendLimits(day_nanos=5_000_000_000),
    day_spent_nanos=1_250_000_001,
    month_spent_nanos=3_000_000_000,
    total_spent_nanos=3_000_000_000,
    held_nanos=10,
    day_end_time=Timestamp(seconds=1_794_787_200),
    month_end_time=Timestamp(seconds=1_796_083_200),
)


LISTED = ("metering", "SpendLimitService.ListSpendLimits", pb.ListSpendLimitsResponse(spends=[SPEND]))
SET = ("metering", "SpendLimitService.SetSpendLimits", pb.SetSpendLimitsResponse(spend=SPEND))
SET_KEY = ("auth", "KeyAdminService.SetKeySpendLimits", auth_pb2.SetKeySpendLimitsResponse(spend=SPEND))


def played_set() -> Played:
    return play(KNOWN, LISTED, SET_KEY)


def test_limits_of_a_key_are_set_by_auth_and_those_of_the_account_by_metering() -> None:
    far_end = play(KNOWN, LISTED, SET_KEY)
    assert far_end.run("limits", "set", "acct_1", "--key", "key_1", "--day", "1").exit_code == 0
    asked = far_end.requests[-1]
    assert (asked.account_id, asked.key_id) == ("acct_1", "key_1")
    far_end = play(KNOWN, LISTED, SET)
    assert far_end.run("limits", "set", "acct_1", "--day", "1").exit_code == 0
    assert far_end.requests[-1] == pb.SetSpendLimitsRequest(
        account_id="acct_1", limits=pb.SpendLimits(day_nanos=1_000_000_000)
    )


def test_limits_are_shown_with_what_was_spent_to_the_nano_dollar() -> None:
    shown = json.loads(play(KNOWN, LISTED).run("limits", "show", "acct_1", "--json").stdout)
    assert [(row["period"], row["limit_usd"], row["spent_nanos"]) for row in shown] == [
        ("day", "5.00", 1_250_000_001),
        ("month", None, 3_000_000_000),
        ("total", None, 3_000_000_000),
    ]
    assert shown[0]["starts_anew"] == "2026-11-16T00:00:00Z"


def test_a_limit_that_is_not_named_stays_as_it_is() -> None:
    far_end = played_set()
    assert far_end.run("limits", "set", "acct_1", "--key", "key_1", "--month", "20").exit_code == 0
    assert far_end.requests[-1].spend_limits == pb.SpendLimits(day_nanos=5_000_000_000, month_nanos=20_000_000_000)


def test_none_takes_a_limit_away() -> None:
    far_end = played_set()
    far_end.run("limits", "set", "acct_1", "--key", "key_1", "--day", "none", "--total", "0")
    assert far_end.requests[-1].spend_limits == pb.SpendLimits(total_nanos=0)


def test_a_change_of_nothing_or_to_less_than_zero_is_refused() -> None:
    assert "nothing to change" in play().run("limits", "set", "acct_1").stderr
    assert "must not be negative" in play().run("limits", "set", "acct_1", "--day=-1").stderr


def test_what_was_spent_is_recounted() -> None:
    recounted = pb.RecountSpendsResponse(accounts=3, corrected_accounts=1)
    far_end = play(("metering", "SpendLimitService.RecountSpends", recounted))
    assert json.loads(far_end.run("limits", "recount", "--json").stdout) == {"accounts": 3, "corrected_accounts": 1}

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


KEY = ("auth", "KeyAdminService.GetKey", auth_pb2.GetKeyResponse(key=auth_pb2.Key(account_id="acct_1")))


def played_set() -> Played:
    return play(KNOWN, KEY, LISTED, SET)


def test_the_key_of_another_account_is_refused() -> None:
    far_end = played_set()
    refused = far_end.run("limits", "set", "acct_2", "--key", "key_1", "--day", "1")
    assert refused.exit_code == 1
    assert "key_1 is not a key of acct_2" in refused.stderr
    assert not any(isinstance(request, pb.SetSpendLimitsRequest) for request in far_end.requests)


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
    assert far_end.requests[-1].limits == pb.SpendLimits(day_nanos=5_000_000_000, month_nanos=20_000_000_000)


def test_none_takes_a_limit_away() -> None:
    far_end = played_set()
    far_end.run("limits", "set", "acct_1", "--key", "key_1", "--day", "none", "--total", "0")
    assert far_end.requests[-1].limits == pb.SpendLimits(total_nanos=0)


def test_a_change_of_nothing_or_to_less_than_zero_is_refused() -> None:
    assert "nothing to change" in play().run("limits", "set", "acct_1").stderr
    assert "must not be negative" in play().run("limits", "set", "acct_1", "--day=-1").stderr


def test_what_was_spent_is_recounted() -> None:
    recounted = pb.RecountSpendsResponse(accounts=3, corrected_accounts=1)
    far_end = play(("metering", "SpendLimitService.RecountSpends", recounted))
    assert json.loads(far_end.run("limits", "recount", "--json").stdout) == {"accounts": 3, "corrected_accounts": 1}

import json

import pytest

from protos.auth.v1 import auth_pb2
from protos.metering.v1 import metering_pb2
from services.chassis.errors import LegatoError, Reason
from tests.cli.played import play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
UNKNOWN = ("auth", "AccountAdminService.GetAccount", LegatoError(Reason.NOT_FOUND, "There is no such account."))
BALANCE = metering_pb2.Balance(account_id="acct_1", balance_nanos=3_750_000_001, held_nanos=250)


def test_a_balance_is_exact() -> None:
    far_end = play(KNOWN, ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=BALANCE)))
    assert json.loads(far_end.run("credits", "balance", "acct_1", "--json").stdout) == {
        "account_id": "acct_1",
        "balance_usd": "3.750000001",
        "balance_nanos": 3_750_000_001,
        "held_usd": "0.00000025",
        "held_nanos": 250,
    }


def test_a_grant_carries_an_id_of_its_own() -> None:
    answer = metering_pb2.GrantCreditsResponse(balance=BALANCE)
    ids = set()
    for _ in range(2):
        far_end = play(KNOWN, ("metering", "CreditAdminService.GrantCredits", answer))
        assert far_end.run("credits", "grant", "acct_1", "5.00").exit_code == 0
        assert far_end.requests[1].amount_nanos == 5_000_000_000
        ids.add(far_end.requests[1].grant_id)
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("amount", "nanos"),
    [
        ("-1.25", -1_250_000_000),
        ("-.5", -500_000_000),
        ("-0.000000001", -1),
        ("2", 2_000_000_000),
        ("+2", 2_000_000_000),
    ],
)
@pytest.mark.parametrize("after", [True, False])
def test_an_adjustment_may_be_negative(amount: str, nanos: int, after: bool) -> None:
    far_end = play(
        KNOWN, ("metering", "CreditAdminService.AdjustCredits", metering_pb2.AdjustCreditsResponse(balance=BALANCE))
    )
    options = ["--reason", "charged twice", "--json"]
    arguments = ["acct_1", amount, *options] if after else [*options, "acct_1", amount]
    result = far_end.run("credits", "adjust", *arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["balance_nanos"] == 3_750_000_001
    assert (far_end.requests[1].amount_nanos, far_end.requests[1].reason) == (nanos, "charged twice")
    assert far_end.requests[1].adjustment_id


@pytest.mark.parametrize(
    "arguments",
    [["grant", "acct_x", "5"], ["adjust", "acct_x", "-1", "--reason", "slip"], ["balance", "acct_x"]],
)
def test_money_of_an_account_that_does_not_exist_is_refused(arguments: list[str]) -> None:
    result = play(UNKNOWN).run("credits", *arguments)
    assert (result.exit_code, result.stderr) == (1, "legato: There is no such account.\n")


def test_going_below_what_is_there_is_refused() -> None:
    refusal = LegatoError(Reason.CREDITS_EXHAUSTED, "The account does not have that much.")
    far_end = play(KNOWN, ("metering", "CreditAdminService.AdjustCredits", refusal))
    result = far_end.run("credits", "adjust", "acct_1", "-100", "--reason", "refund")
    assert (result.exit_code, result.stderr) == (1, "legato: The account does not have that much.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["grant", "acct_1"],
        ["grant", "acct_1", "-5"],
        ["grant", "acct_1", "0"],
        ["grant", "acct_1", "five"],
        ["grant", "acct_1", "1.0000000001"],
        ["grant", "acct_1", "5", "6"],
        ["adjust", "acct_1", "-1.25"],
        ["adjust", "acct_1", "0", "--reason", "nothing"],
        ["adjust", "acct_1", "-1e5", "--reason", "exponent"],
        ["adjust", "acct_1", "nan", "--reason", "nan"],
        ["adjust", "acct_1", "-1", "--raeson", "slip"],
        ["balance"],
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = play().run("credits", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("legato: ")
    assert result.stderr.count("\n") == 1

import json
from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.payments.v1 import payments_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
UNKNOWN = (
    "auth",
    "AccountAdminService.GetAccount",
    LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such account.")),
)
BALANCE = metering_pb2.Balance(
    account_id="acct_1", balance_nanos=3_750_000_001, held_nanos=250, owed_nanos=4_350_000_000
)


def test_a_balance_is_exact() -> None:
    far_end = play(KNOWN, ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=BALANCE)))
    assert json.loads(far_end.run("credits", "balance", "acct_1", "--json").stdout) == {
        "account_id": "acct_1",
        "balance_usd": "3.750000001",
        "balance_nanos": 3_750_000_001,
        "held_usd": "0.00000025",
        "held_nanos": 250,
        "owed_usd": "4.35",
        "owed_nanos": 4_350_000_000,
    }


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
    assert far_end.requests[1].operation_id


@pytest.mark.parametrize(
    "arguments",
    [["grant", "acct_x", "5"], ["adjust", "acct_x", "-1", "--reason", "slip"], ["balance", "acct_x"]],
)
def test_money_of_an_account_that_does_not_exist_is_refused(arguments: list[str]) -> None:
    result = play(UNKNOWN).run("credits", *arguments)
    assert (result.exit_code, result.stderr) == (1, "legato: There is no such account.\n")


def test_going_below_what_is_there_is_refused() -> None:
    refusal = LegatoError(Reason.CREDITS_EXHAUSTED, Sentence.verbatim("The account does not have that much."))
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


def entry(kind: Any, day: int, amount_nanos: int, balance_nanos: int, **more: Any) -> metering_pb2.CreditEntry:
    made = metering_pb2.CreditEntry(kind=kind, amount_nanos=amount_nanos, balance_nanos=balance_nanos, **more)
    made.time.FromSeconds(day * 86_400)
    return made


GRANTED = entry(metering_pb2.CREDIT_KIND_GRANT, 1, 5_000_000_001, 5_000_000_001, booking_id="invoice-1")
ADJUSTED = entry(metering_pb2.CREDIT_KIND_ADJUSTMENT, 1, -1, 5_000_000_000, booking_id="a", reason="charged twice")
CHARGED = entry(metering_pb2.CREDIT_KIND_CHARGES, 2, -2_570, 4_999_997_430)


def credit_page(*entries: metering_pb2.CreditEntry, after: str = "") -> tuple[str, str, Any]:
    answer = metering_pb2.ListCreditsResponse(entries=entries, next_page_token=after)
    return "metering", "CreditAdminService.ListCredits", answer


def test_list_is_exact_and_whole() -> None:
    far_end = play(KNOWN, credit_page(GRANTED, ADJUSTED, after="second"), credit_page(CHARGED))
    listed = json.loads(far_end.run("credits", "list", "acct_1", "--json").stdout)
    assert (listed["account_id"], listed["next_page"]) == ("acct_1", None)
    assert listed["entries"] == [
        {
            "time": "1970-01-02T00:00:00Z", "kind": "grant", "amount_usd": "5.000000001", "amount_nanos": 5_000_000_001,
            "balance_usd": "5.000000001", "balance_nanos": 5_000_000_001, "id": "invoice-1", "reason": None,
        },
        {
            "time": "1970-01-02T00:00:00Z", "kind": "adjustment", "amount_usd": "-0.000000001", "amount_nanos": -1,
            "balance_usd": "5.00", "balance_nanos": 5_000_000_000, "id": "a", "reason": "charged twice",
        },
        {
            "time": "1970-01-03", "kind": "charges", "amount_usd": "-0.00000257", "amount_nanos": -2_570,
            "balance_usd": "4.99999743", "balance_nanos": 4_999_997_430, "id": None, "reason": None,
        },
    ]  # fmt: skip
    assert [request.page_token for request in far_end.requests[1:]] == ["", "second"]


def test_list_may_be_read_in_parts() -> None:
    far_end = play(KNOWN, credit_page(GRANTED, ADJUSTED, after="second"))
    listed = json.loads(far_end.run("credits", "list", "acct_1", "--limit", "2", "--json").stdout)
    assert (len(listed["entries"]), listed["next_page"]) == (2, "second")
    assert far_end.requests[1].page_size == 2
    far_end = play(KNOWN, credit_page(CHARGED))
    listed = json.loads(far_end.run("credits", "list", "acct_1", "--page", "second", "--json").stdout)
    assert (len(listed["entries"]), listed["next_page"]) == (1, None)
    assert far_end.requests[1].page_token == "second"


def test_people_get_a_table_and_the_command_that_goes_on() -> None:
    far_end = play(KNOWN, credit_page(GRANTED, after="second"))
    result = far_end.run("credits", "list", "acct_1", "--limit", "1")
    header, line = result.stdout.splitlines()
    assert header.split() == ["time", "kind", "amount_usd", "balance_usd", "id", "reason"]
    assert line.split() == ["1970-01-02T00:00:00Z", "grant", "5.000000001", "5.000000001", "invoice-1", "-"]
    assert "legato credits list acct_1 --limit 1 --page second" in result.stderr


def test_list_of_an_unknown_account_is_refused() -> None:
    assert play(UNKNOWN).run("credits", "list", "acct_1").exit_code == 1


def test_card_payments_since_a_backup_are_booked_for_accounts_that_still_exist() -> None:
    listed = [
        payments_pb2.ListedPayment(payment_id="pi_1", account_id="acct_1", amount_cents=500),
        payments_pb2.ListedPayment(payment_id="pi_2", account_id="acct_2", amount_cents=700),
        payments_pb2.ListedPayment(payment_id="pi_0"),
        payments_pb2.ListedPayment(payment_id="pi_3", account_id="acct_1", amount_cents=900),
    ]
    booked = ("payments", "PaymentService.BookPayment", payments_pb2.BookPaymentResponse(is_booked=True))
    failed = (
        "payments",
        "PaymentService.BookPayment",
        LegatoError(Reason.INTERNAL, Sentence.verbatim("Something went wrong.")),
    )
    far_end = play(
        ("payments", "PaymentService.ListPayments", payments_pb2.ListPaymentsResponse(payments=listed)),
        KNOWN,
        UNKNOWN,
        booked,
        failed,
        booked,
    )
    result = far_end.run("credits", "book-payments", "--from", "2026-11-15", "--json")
    assert {row["payment_id"]: row["state"] for row in json.loads(result.stdout)} == {
        "pi_1": "booked",
        "pi_2": "no such account",
        "pi_0": "refused: Something went wrong.",
        "pi_3": "booked",
    }
    assert far_end.requests[0].start_time.seconds == 1_794_700_800
    assert [(each.payment_id, each.opens_account) for each in far_end.requests[3:]] == [
        ("pi_1", True),
        ("pi_0", False),
        ("pi_3", True),
    ]


def test_requests_in_journals_are_booked_for_accounts_that_exist() -> None:
    def settlements(**booked: Any) -> Any:
        found = [
            metering_pb2.UnmatchedSettlement(
                request_id="1", account_id="acct_1", class_id="forte", cost_nanos=40, **booked
            ),
            metering_pb2.UnmatchedSettlement(request_id="2", account_id="acct_2", class_id="forte", cost_nanos=50),
            metering_pb2.UnmatchedSettlement(request_id="3", account_id="acct_1"),
        ]
        answer = metering_pb2.BookUnmatchedResponse(settlements=found)
        return "metering", "CreditAdminService.BookUnmatched", answer

    listed = play(settlements(), KNOWN, UNKNOWN).run("credits", "book-requests", "--dry-run", "--json")
    states = [(row["request_id"], row["cost_usd"], row["state"]) for row in json.loads(listed.stdout)]
    assert states == [
        ("1", "0.00000004", "not booked"),
        ("2", "0.00000005", "no such account"),
        ("3", "0.00", "its class is not known"),
    ]
    far_end = play(settlements(), KNOWN, UNKNOWN, settlements(charged_nanos=40))
    booked = far_end.run("credits", "book-requests", "--json")
    assert [row["state"] for row in json.loads(booked.stdout)] == [
        "booked",
        "no such account",
        "its class is not known",
    ]
    assert list(far_end.requests[3].request_ids) == ["1"]

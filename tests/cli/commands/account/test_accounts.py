import json
import shlex
from datetime import UTC, datetime

import grpc
import pytest
from click.testing import CliRunner

from cli.commands.account import bookings
from cli.connection import NotRunning, ServiceStubs
from cli.main import legato
from legato_protos.auth.v1 import accounts_pb2, auth_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import content_pb2
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import play


def account(account_id: str = "acct_1", **fields: object) -> auth_pb2.Account:
    made = auth_pb2.Account(account_id=account_id, name="Ada", preferred_class="forte", **fields)  # type: ignore[arg-type]
    made.create_time.FromDatetime(datetime(2026, 11, 15, 8, tzinfo=UTC))
    return made


def balance(account_id: str = "acct_1", nanos: int = 0, held: int = 0) -> metering_pb2.Balance:
    return metering_pb2.Balance(account_id=account_id, balance_nanos=nanos, held_nanos=held)


def test_an_account_is_made_with_its_credit() -> None:
    far_end = play(
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=account())),
        (
            "metering",
            "CreditAdminService.GrantCredits",
            metering_pb2.GrantCreditsResponse(balance=balance(nanos=5_000_000_000)),
        ),
    )
    result = far_end.run("accounts", "create", "Ada", "--credits", "5.00", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "account_id": "acct_1",
        "name": "Ada",
        "class": "forte",
        "classes": None,
        "auto_class": "forte",
        "balance_usd": "5.00",
        "balance_nanos": 5_000_000_000,
        "held_nanos": 0,
        "owed_nanos": 0,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "concurrent_requests": None,
        "grounding": [],
        "suspended_at": None,
        "closed_at": None,
        "created_at": "2026-11-15T08:00:00Z",
    }
    created, granted = far_end.requests
    assert created.name == "Ada"
    assert (granted.account_id, granted.amount_nanos) == ("acct_1", 5_000_000_000)
    assert len(granted.operation_id) >= 32


def test_without_credits_metering_is_not_asked() -> None:
    far_end = play(("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=account())))
    result = far_end.run("accounts", "create", "Ada", "--json")
    assert json.loads(result.stdout)["balance_usd"] == "0.00"


def test_a_grant_is_repeated_under_the_same_id_when_metering_is_away_for_a_moment() -> None:
    far_end = play(
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=account())),
        ("metering", "CreditAdminService.GrantCredits", grpc.StatusCode.UNAVAILABLE),
        (
            "metering",
            "CreditAdminService.GrantCredits",
            metering_pb2.GrantCreditsResponse(balance=balance(nanos=1)),
        ),
    )
    result = far_end.run("accounts", "create", "Ada", "--credits", "0.000000001", "--json")
    assert json.loads(result.stdout)["balance_nanos"] == 1
    assert far_end.requests[1].operation_id == far_end.requests[2].operation_id


def test_making_an_account_is_not_repeated_since_it_would_make_two() -> None:
    far_end = play(("auth", "AccountAdminService.CreateAccount", grpc.StatusCode.UNAVAILABLE))
    result = far_end.run("accounts", "create", "Ada")
    assert result.exit_code == 1
    assert result.stderr == "legato: The service did not answer: check whether it was done before you repeat it.\n"
    assert len(far_end.requests) == 1


def test_service_that_answers_that_its_database_is_away_is_not_said_to_be_silent() -> None:
    far_end = play(("auth", "AccountAdminService.CreateAccount", DatabaseUnavailable()))
    result = far_end.run("accounts", "create", "Ada")
    assert result.exit_code == 1
    assert result.stderr == (
        "legato: The database is not available right now: check whether it was done before you repeat it.\n"
    )


def test_an_account_whose_grant_is_refused_is_not_lost() -> None:
    refusal = LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("That is too much."))
    far_end = play(
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=account())),
        ("metering", "CreditAdminService.GrantCredits", refusal),
    )
    result = far_end.run("accounts", "create", "Ada", "--credits", "5", "--data", "/srv/legato")
    assert result.exit_code == 1
    assert "acct_1 was created, but got no credit (That is too much.)" in result.stderr
    assert "`legato credits grant acct_1 5.00 --data /srv/legato`" in result.stderr


def test_no_account_is_made_where_its_credit_is_more_than_can_be_granted() -> None:
    far_end = play()
    result = far_end.run("accounts", "create", "Ada", "--credits", "1000000.01")
    assert result.exit_code == 2
    assert result.stderr == "legato: Invalid value for '--credits': the amount must be at most a million dollars.\n"
    assert far_end.requests == []


def test_account_whose_grant_had_no_answer_is_told_with_the_command_that_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bookings, "RETRY_FOR_S", 0.0)
    far_end = play(
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=account())),
        ("metering", "CreditAdminService.GrantCredits", grpc.StatusCode.UNAVAILABLE),
    )
    result = far_end.run("accounts", "create", "Ada", "--credits", "5")
    assert result.exit_code == 1
    assert result.stderr.startswith("legato: acct_1 was created. It is not known whether ")
    told = shlex.split(result.stderr.split("`")[1])
    assert told == ["legato", "credits", "grant", "acct_1", "5.00", "--id", far_end.requests[1].operation_id]


def test_no_account_is_made_where_metering_is_not_there_to_grant_its_credit() -> None:
    def open_channel(service: str) -> grpc.Channel:
        raise NotRunning(f"{service} is not running")

    result = CliRunner().invoke(legato, ["accounts", "create", "Ada", "--credits", "5"], obj=ServiceStubs(open_channel))
    assert (result.exit_code, result.stderr) == (3, "legato: metering is not running\n")


def test_every_page_of_accounts_is_listed_with_balances() -> None:
    far_end = play(
        (
            "auth",
            "AccountAdminService.ListAccounts",
            auth_pb2.ListAccountsResponse(accounts=[account("acct_1")], next_page_token="more"),
        ),
        (
            "auth",
            "AccountAdminService.ListAccounts",
            auth_pb2.ListAccountsResponse(accounts=[account("acct_2", requests_per_minute=60)]),
        ),
        (
            "metering",
            "CreditAdminService.ListBalances",
            metering_pb2.ListBalancesResponse(balances=[balance("acct_2", 1_500_000_000)]),
        ),
    )
    listed = json.loads(far_end.run("accounts", "list", "--json").stdout)
    assert [(one["account_id"], one["balance_usd"], one["requests_per_minute"]) for one in listed] == [
        ("acct_1", "0.00", None),
        ("acct_2", "1.50", 60),
    ]
    assert far_end.requests[1].page_token == "more"
    assert list(far_end.requests[2].account_ids) == ["acct_1", "acct_2"]


def test_no_accounts_are_an_empty_array() -> None:
    far_end = play(("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse()))
    assert json.loads(far_end.run("accounts", "list", "--json").stdout) == []


def test_people_get_a_table() -> None:
    far_end = play(
        (
            "auth",
            "AccountAdminService.ListAccounts",
            auth_pb2.ListAccountsResponse(accounts=[account("acct_1"), account("acct_22")]),
        ),
        ("metering", "CreditAdminService.ListBalances", metering_pb2.ListBalancesResponse()),
    )
    lines = far_end.run("accounts", "list").stdout.splitlines()
    assert lines[0].split()[:4] == ["account_id", "name", "class", "balance_usd"]
    assert lines[1].index("Ada") == lines[2].index("Ada") == lines[0].index("name")


def test_an_unknown_account_is_refused_on_one_line() -> None:
    refusal = LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such account."))
    result = play(("auth", "AccountAdminService.GetAccount", refusal)).run("accounts", "show", "acct_x")
    assert result.exit_code == 1
    assert result.stderr == "legato: There is no such account.\n"
    assert result.stdout == ""


def test_only_what_is_given_is_set() -> None:
    far_end = play(
        (
            "auth",
            "AccountAdminService.UpdateAccount",
            auth_pb2.UpdateAccountResponse(account=account(requests_per_minute=60)),
        ),
        ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=balance())),
    )
    result = far_end.run("accounts", "set", "acct_1", "--requests-per-minute", "60", "--json")
    assert json.loads(result.stdout)["requests_per_minute"] == 60
    assert far_end.requests[0].requests_per_minute == 60
    assert not far_end.requests[0].HasField("preferred_class")


def test_every_limit_can_be_set_at_once() -> None:
    far_end = play(
        ("auth", "AccountAdminService.UpdateAccount", auth_pb2.UpdateAccountResponse(account=account())),
        ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=balance())),
    )
    limits = ["--requests-per-minute", "0", "--tokens-per-minute", "1000", "--concurrent-requests", "3"]
    assert far_end.run("accounts", "set", "acct_1", *limits).exit_code == 0
    request = far_end.requests[0]
    assert request == auth_pb2.UpdateAccountRequest(
        account_id="acct_1", requests_per_minute=0, tokens_per_minute=1000, concurrent_requests=3
    )


def test_groundings_are_switched_one_by_one_and_those_that_are_on_are_shown() -> None:
    far_end = play(
        ("auth", "AccountAdminService.UpdateAccount", auth_pb2.UpdateAccountResponse(account=account(memory=True))),
        ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=balance())),
    )
    result = far_end.run("accounts", "set", "acct_1", "--search", "off", "--memory", "on", "--json")
    assert json.loads(result.stdout)["grounding"] == ["memory"]
    assert far_end.requests[0] == auth_pb2.UpdateAccountRequest(account_id="acct_1", search=False, memory=True)


@pytest.mark.parametrize("arguments", [["suspend"], ["resume"], ["set", "--class", "mezzo"]])
def test_change_that_was_made_is_not_called_refused_because_the_balance_cannot_be_read(arguments: list[str]) -> None:
    name = {"suspend": "Suspend", "resume": "Resume", "set": "Update"}[arguments[0]]
    response = getattr(auth_pb2, f"{name}AccountResponse")(account=account())
    far_end = play(
        ("auth", f"AccountAdminService.{name}Account", response),
        (
            "metering",
            "MeteringService.GetBalance",
            LegatoError(Reason.INTERNAL, Sentence.verbatim("Something failed.")),
        ),
    )
    command, *options = arguments
    result = far_end.run("accounts", command, "acct_1", *options, "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["account_id"] == "acct_1"
    assert (shown["balance_usd"], shown["balance_nanos"], shown["held_nanos"]) == (None, None, None)


def test_a_suspended_account_is_shown_as_such_until_it_is_resumed() -> None:
    suspended = account()
    suspended.suspend_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    shown = metering_pb2.GetBalanceResponse(balance=balance())
    far_end = play(
        ("auth", "AccountAdminService.SuspendAccount", auth_pb2.SuspendAccountResponse(account=suspended)),
        ("metering", "MeteringService.GetBalance", shown),
    )
    result = far_end.run("accounts", "suspend", "acct_1", "--json")
    assert json.loads(result.stdout)["suspended_at"] == "2026-11-15T09:00:00Z"
    assert far_end.requests[0].account_id == "acct_1"
    far_end = play(
        ("auth", "AccountAdminService.ResumeAccount", auth_pb2.ResumeAccountResponse(account=account())),
        ("metering", "MeteringService.GetBalance", shown),
    )
    assert json.loads(far_end.run("accounts", "resume", "acct_1", "--json").stdout)["suspended_at"] is None
    assert far_end.requests[0].account_id == "acct_1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["accounts", "suspend"],
        ["accounts", "resume"],
        ["accounts", "set", "acct_1", "--tokens-per-minute", "-1"],
        ["accounts", "set", "acct_1", "--concurrent-requests", "many"],
        ["accounts", "create"],
        ["accounts", "create", "Ada", "--credits", "-1"],
        ["accounts", "create", "Ada", "--credits", "1e3"],
        ["accounts", "create", "Ada", "Lovelace"],
        ["accounts", "set", "acct_1"],
        ["accounts", "set", "acct_1", "--class", "piano"],
        ["accounts", "set", "acct_1", "--requests-per-minute", "-1"],
        # Each as auth would refuse it.
        ["accounts", "set", "acct_1", "--requests-per-minute", "1000001"],
        ["accounts", "set", "acct_1", "--tokens-per-minute", "1000000001"],
        ["accounts", "set", "acct_1", "--concurrent-requests", "1000001"],
        ["accounts", "burn"],
        ["accounts", "list", "--yaml"],
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = play().run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("legato: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "allowed", "all_again"), [("mezzo,forte", ["mezzo", "forte"], False), ("all", [], True)]
)
def test_an_account_is_limited_to_classes_and_back(given: str, allowed: list[str], all_again: bool) -> None:
    changed = account()
    changed.allowed_classes.class_ids.extend(["mezzo", "forte"])
    changed.auto_class = "mezzo"
    far_end = play(
        ("auth", "AccountAdminService.UpdateAccount", auth_pb2.UpdateAccountResponse(account=changed)),
        ("metering", "MeteringService.GetBalance", metering_pb2.GetBalanceResponse(balance=balance())),
    )
    shown = json.loads(far_end.run("accounts", "set", "acct_1", "--classes", given, "--json").stdout)
    assert (shown["classes"], shown["auto_class"]) == (["mezzo", "forte"], "mezzo")
    request = far_end.requests[0]
    assert (list(request.allowed_classes.class_ids), request.allow_all_classes) == (allowed, all_again)
    assert not request.HasField("requests_per_minute")


def test_closing_ends_access_first_and_memberships_last() -> None:
    closed = account()
    closed.close_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    steps = (
        ("auth", "AccountAdminService.CloseAccount", accounts_pb2.CloseAccountResponse(account=closed, revoked_keys=2)),
        ("router", "ContentService.EraseAccount", content_pb2.EraseAccountResponse(notes=3, attachments=1)),
        ("auth", "AccountAdminService.EndMemberships", accounts_pb2.EndMembershipsResponse(ended=2)),
    )
    far_end = play(*steps)
    [shown] = json.loads(far_end.run("accounts", "close", "acct_1", "--json").stdout)
    assert shown == {
        "account_id": "acct_1",
        "closed_at": "2026-11-15T09:00:00Z",
        "revoked_keys": 2,
        "notes": 3,
        "attachments": 1,
        "memberships": 2,
    }
    assert [type(each).__name__ for each in far_end.requests] == [
        "CloseAccountRequest", "EraseAccountRequest", "EndMembershipsRequest"
    ]  # fmt: skip
    # After a restore, for all that are closed, and no others.
    listed = auth_pb2.ListAccountsResponse(accounts=[closed, account("acct_2")])
    again = play(("auth", "AccountAdminService.ListAccounts", listed), *steps)
    assert len(json.loads(again.run("accounts", "close", "--again", "--json").stdout)) == 1
    for arguments in ((), ("acct_1", "--again")):
        assert play().run("accounts", "close", *arguments).exit_code == 2

import json
from datetime import UTC, datetime

import pytest

from legato_protos.auth.v1 import callers_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import play


def granted(account_id: str = "acct_1", **fields: int) -> pb.CallerGrant:
    made = pb.CallerGrant(caller="billing-bot", account_id=account_id, **fields)  # type: ignore[arg-type]
    made.create_time.FromDatetime(datetime(2026, 11, 15, 8, tzinfo=UTC))
    return made


def test_a_grant_of_an_account_is_shown_with_its_limits() -> None:
    answer = pb.GrantCallerResponse(grant=granted(requests_per_minute=60))
    far_end = play(("auth", "KeyAdminService.GrantCaller", answer))
    result = far_end.run(
        "callers", "grant", "billing-bot", "--account", "acct_1", "--requests-per-minute", "60", "--json"
    )
    assert json.loads(result.stdout) == {
        "caller": "billing-bot",
        "account_id": "acct_1",
        "all_accounts": False,
        "created_at": "2026-11-15T08:00:00Z",
        "revoked_at": None,
        "requests_per_minute": 60,
        "tokens_per_minute": None,
        "concurrent_requests": None,
    }
    assert far_end.requests == [
        pb.GrantCallerRequest(caller="billing-bot", account_id="acct_1", requests_per_minute=60)
    ]


def test_a_grant_of_all_accounts_names_none() -> None:
    far_end = play(("auth", "KeyAdminService.GrantCaller", pb.GrantCallerResponse(grant=granted(""))))
    shown = json.loads(far_end.run("callers", "grant", "billing-bot", "--all-accounts", "--json").stdout)
    assert (shown["account_id"], shown["all_accounts"]) == (None, True)
    assert far_end.requests == [pb.GrantCallerRequest(caller="billing-bot", all_accounts=True)]


@pytest.mark.parametrize("given", [[], ["--account", "acct_1", "--all-accounts"]])
def test_a_grant_is_either_of_an_account_or_of_all(given: list[str]) -> None:
    result = play().run("callers", "grant", "billing-bot", *given)
    assert result.exit_code == 2
    assert "give --account or --all-accounts" in result.stderr


def test_every_page_of_grants_is_listed_revoked_ones_too() -> None:
    revoked = granted("acct_2")
    revoked.revoke_time.FromDatetime(datetime(2026, 11, 15, 9, tzinfo=UTC))
    first = pb.ListCallersResponse(grants=[granted("", tokens_per_minute=900)], next_page_token="more")
    far_end = play(
        ("auth", "KeyAdminService.ListCallers", first),
        ("auth", "KeyAdminService.ListCallers", pb.ListCallersResponse(grants=[revoked])),
    )
    headers, of_all, of_one = (line.split() for line in far_end.run("callers", "list").stdout.splitlines())
    assert headers == ["caller", "account_id", "all_accounts", "created_at", "revoked_at", "tokens_per_minute"]
    assert (of_all[1], of_all[-1]) == ("-", "900")
    assert (of_one[1], of_one[-2:]) == ("acct_2", ["2026-11-15T09:00:00Z", "-"])
    assert far_end.requests[1].page_token == "more"


@pytest.mark.parametrize(
    ("given", "remaining", "told"),
    [
        ([], [], "billing-bot may no longer call for any account."),
        (["--account", "acct_1"], [granted("acct_2")], "billing-bot may no longer call for acct_1."),
        (["--account", "acct_1"], [granted("")], "billing-bot may still call for acct_1: it is granted all accounts."),
    ],
)
def test_a_revocation_says_what_is_left(given: list[str], remaining: list[pb.CallerGrant], told: str) -> None:
    answer = ("auth", "KeyAdminService.RevokeCaller", pb.RevokeCallerResponse(remaining_grants=remaining))
    assert play(answer).run("callers", "revoke", "billing-bot", *given).stdout.strip() == told
    far_end = play(answer)
    shown = json.loads(far_end.run("callers", "revoke", "billing-bot", *given, "--json").stdout)
    assert [one["account_id"] or "" for one in shown["remaining_grants"]] == [one.account_id for one in remaining]
    account_id = "acct_1" if given else ""
    assert far_end.requests[0] == pb.RevokeCallerRequest(caller="billing-bot", account_id=account_id)


def test_a_mistyped_name_is_refused_and_not_taken_for_revoked() -> None:
    refused = LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such grant."))
    result = play(("auth", "KeyAdminService.RevokeCaller", refused)).run("callers", "revoke", "biling-bot")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "There is no such grant." in result.stderr

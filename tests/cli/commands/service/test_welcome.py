import json
import shlex

import pytest

from cli.commands.service.welcome import curl_line, show_welcome, welcome
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.metering.v1 import metering_pb2
from tests.cli.played import play

ADDRESS = "http://127.0.0.1:8080/v1"
ACCOUNT = auth_pb2.Account(account_id="acct_1")


def test_the_first_start_makes_an_account_with_credit_and_a_key_that_may_do_everything() -> None:
    balance = metering_pb2.Balance(account_id="acct_1", balance_nanos=5_000_000_000)
    far_end = play(
        ("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse()),
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=ACCOUNT)),
        ("metering", "CreditAdminService.GrantCredits", metering_pb2.GrantCreditsResponse(balance=balance)),
        ("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(api_key="sk-legato-x")),
    )
    greeting = welcome(far_end.services, ADDRESS)
    assert greeting == {
        "base_url": ADDRESS,
        "account_id": "acct_1",
        "balance_usd": "5.00",
        "api_key": "sk-legato-x",
    }
    assert far_end.requests[2].amount_nanos == 5_000_000_000
    assert (far_end.requests[3].account_id, list(far_end.requests[3].scopes)) == ("acct_1", [])


def test_the_first_operator_owns_the_account_that_the_first_start_makes_and_no_other() -> None:
    user, origin = pb.User(user_id="user_1"), "http://localhost:8081"
    signing_in = (
        ("auth", "UserAdminService.ListUsers", pb.ListUsersResponse()),
        ("auth", "UserAdminService.CreateUser", pb.CreateUserResponse(user=user)),
        ("auth", "UserAdminService.SetOperator", pb.SetOperatorResponse(user=user)),
        ("auth", "UserAdminService.CreateSignInLink", pb.CreateSignInLinkResponse(code="K7Q2")),
    )
    first = play(
        ("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse()),
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=ACCOUNT)),
        ("metering", "CreditAdminService.GrantCredits", metering_pb2.GrantCreditsResponse()),
        ("auth", "KeyAdminService.CreateKey", auth_pb2.CreateKeyResponse(api_key="sk-legato-x")),
        *signing_in,
    )
    assert welcome(first.services, ADDRESS, origin)["console"] == f"{origin}/sign-in#K7Q2"
    customers = ("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse(accounts=[ACCOUNT]))
    later = play(customers, *signing_in)
    assert welcome(later.services, ADDRESS, origin)["console"] == f"{origin}/sign-in#K7Q2"
    owned = [
        request.account_id
        for far_end in (first, later)
        for request in far_end.requests
        if isinstance(request, pb.CreateUserRequest)
    ]
    assert owned == ["acct_1", ""]


def test_later_starts_make_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    far_end = play(("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse(accounts=[ACCOUNT])))
    greeting = welcome(far_end.services, ADDRESS)
    assert greeting == {"base_url": ADDRESS, "account_id": "acct_1"}
    show_welcome(greeting, " --data elsewhere")
    assert "keys create --account acct_1 --data elsewhere" in capsys.readouterr().out


def test_the_key_is_shown_with_a_line_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    show_welcome({"base_url": ADDRESS, "account_id": "acct_1", "balance_usd": "5.00", "api_key": "sk-legato-x"}, "")
    shown = capsys.readouterr().out
    assert ADDRESS in shown
    assert "acct_1 with 5.00 $ of credit" in shown
    assert curl_line(ADDRESS, "sk-legato-x") in shown


def test_settings_of_agents_have_the_key_and_an_address_that_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    listening = {"base_url": "http://0.0.0.0:80/v1", "account_id": "acct_1", "balance_usd": "5.00"}
    show_welcome({**listening, "api_key": "sk-legato-x"}, "")
    shown = capsys.readouterr().out
    assert "Use it in Claude Code" in shown
    assert "    export ANTHROPIC_BASE_URL=http://127.0.0.1:80\n    export ANTHROPIC_AUTH_TOKEN=sk-legato-x\n" in shown
    assert "export LEGATO_API_KEY=sk-legato-x" in shown
    assert '      base_url = "http://127.0.0.1:80/v1"\n' in shown


@pytest.mark.parametrize("is_bundled", [True, False])
def test_the_greeting_says_that_the_bundled_model_is_tiny(capsys: pytest.CaptureFixture[str], is_bundled: bool) -> None:
    show_welcome({"base_url": ADDRESS, "account_id": "acct_1"}, "", is_bundled=is_bundled)
    assert ("tiny" in capsys.readouterr().out) is is_bundled


def test_a_shell_reads_the_line_as_it_is_meant() -> None:
    words = shlex.split(curl_line(ADDRESS, "sk-legato-x"))
    assert words[:3] == ["curl", "-sS", f"{ADDRESS}/chat/completions"]
    assert "Authorization: Bearer sk-legato-x" in words
    body = json.loads(words[-1])
    assert body["model"] == "auto"
    assert "stream" not in body


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("http://0.0.0.0:80/v1", "http://127.0.0.1:80/v1"), ("http://[::]:80/v1", "http://[::1]:80/v1")],
)
def test_a_listener_on_every_address_is_asked_at_its_own(listens: str, asked: str) -> None:
    assert shlex.split(curl_line(listens, "sk"))[2].startswith(asked)

"""The last container of the compose file says how to go on, also with the console."""

import pytest

from deploy import hello
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import Played, play

CODE = "K7Q2-M4XD-0000-0000-0000"
ACCOUNT = auth_pb2.Account(account_id="acct_a", name="default")
ADA = pb.User(user_id="user_a", name="Operator", is_operator=True)
NO_ACCOUNT = ("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse())
LISTED = ("auth", "AccountAdminService.ListAccounts", auth_pb2.ListAccountsResponse(accounts=[ACCOUNT]))
LINK = ("auth", "UserAdminService.CreateSignInLink", pb.CreateSignInLinkResponse(code=CODE))


def say(monkeypatch: pytest.MonkeyPatch, far_end: Played) -> str:
    monkeypatch.setattr(hello, "running_services", lambda data: far_end.services)
    monkeypatch.setenv("LEGATO_CONSOLE_URL", "https://console.example.ca,https://other.example.ca")
    return hello.console_text()


def test_the_first_time_there_is_an_account_without_credit_and_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    far_end = play(
        NO_ACCOUNT,
        ("auth", "AccountAdminService.CreateAccount", auth_pb2.CreateAccountResponse(account=ACCOUNT)),
        ("auth", "UserAdminService.ListUsers", pb.ListUsersResponse()),
        ("auth", "UserAdminService.CreateUser", pb.CreateUserResponse(user=ADA)),
        ("auth", "UserAdminService.SetOperator", pb.SetOperatorResponse(user=ADA)),
        LINK,
    )
    said = say(monkeypatch, far_end)
    assert f"https://console.example.ca/sign-in#{CODE}" in said
    assert "credits grant acct_a 5.00" in said
    assert far_end.requests[3].account_id == "acct_a"


def test_later_there_is_a_new_link(monkeypatch: pytest.MonkeyPatch) -> None:
    far_end = play(LISTED, ("auth", "UserAdminService.ListUsers", pb.ListUsersResponse(users=[ADA])), LINK)
    assert CODE in say(monkeypatch, far_end)


def test_without_a_link_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = LegatoError(Reason.CALLER_NOT_ALLOWED, Sentence.verbatim("The caller's certificate does not allow this."))
    said = say(monkeypatch, play(("auth", "AccountAdminService.ListAccounts", refused)))
    assert said.startswith("There is no link to the web console: ")

import json

from legato_protos.auth.v1 import users_pb2 as pb
from tests.cli.played import play

ADA = pb.User(user_id="user_a", name="Ada", is_operator=True)
LINK = ("auth", "UserAdminService.CreateSignInLink", pb.CreateSignInLinkResponse(code="K7Q2-M4XD"))


def test_console_link_is_the_first_operators() -> None:
    far_end = play(("auth", "UserAdminService.ListUsers", pb.ListUsersResponse(users=[ADA])), LINK)
    shown = json.loads(far_end.run("console", "sign-in-link", "--json").stdout)
    assert (shown["user_id"], far_end.requests[1].user_id) == ("user_a", "user_a")


def test_console_link_makes_the_first_user_an_operator_who_owns_no_customers_account() -> None:
    far_end = play(
        ("auth", "UserAdminService.ListUsers", pb.ListUsersResponse()),
        ("auth", "UserAdminService.CreateUser", pb.CreateUserResponse(user=ADA)),
        ("auth", "UserAdminService.SetOperator", pb.SetOperatorResponse(user=ADA)),
        LINK,
    )
    assert far_end.run("console", "sign-in-link").exit_code == 0
    created, made_operator = far_end.requests[1:3]
    assert (created.name, created.account_id) == ("Operator", "")
    assert made_operator.is_operator

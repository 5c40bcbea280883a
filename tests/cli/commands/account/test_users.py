import json
from pathlib import Path

import pytest

from cli.commands.account import users
from cli.supervision.data_folder import write_processes
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.accounts_pb2 import DeleteUserResponse
from legato_protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.changes import Change, from_changes
from tests.cli.played import play

CODE = "K7Q2-M4XD-0000-0000-0000"
ADA = pb.User(user_id="user_a", name="Ada", email="ada@example.ca", is_operator=True)
OWNS = pb.UserMembership(
    user_id="user_a", membership=pb.Membership(account_id="acct_a", role=AccountRole.ACCOUNT_ROLE_OWNER)
)
LISTED = ("auth", "UserAdminService.ListUsers", pb.ListUsersResponse(users=[ADA], memberships=[OWNS]))


def test_invite_prints_a_link_with_the_code_in_its_fragment() -> None:
    far_end = play(("auth", "UserAdminService.CreateUser", pb.CreateUserResponse(user=ADA, code=CODE)))
    result = far_end.run("users", "invite", "--name", "Ada", "--account", "acct_a", "--role", "viewer", "--json")
    assert json.loads(result.stdout)["link"] == f"http://localhost:8081/sign-in#{CODE}"
    [request] = far_end.requests
    assert (request.name, request.account_id, request.role) == ("Ada", "acct_a", AccountRole.ACCOUNT_ROLE_VIEWER)


def test_list_shows_users_with_their_accounts() -> None:
    [shown] = json.loads(play(LISTED).run("users", "list", "--json").stdout)
    assert (shown["user_id"], shown["accounts"], shown["is_operator"]) == ("user_a", ["acct_a (owner)"], True)


def test_disable_and_set_operator_can_be_undone() -> None:
    disabling = play(("auth", "UserAdminService.DisableUser", pb.DisableUserResponse(user=ADA)))
    assert disabling.run("users", "disable", "user_a", "--undo").exit_code == 0
    assert disabling.requests[0].enable
    setting = play(("auth", "UserAdminService.SetOperator", pb.SetOperatorResponse(user=ADA)))
    assert setting.run("users", "set-operator", "user_a", "--undo").exit_code == 0
    assert not setting.requests[0].is_operator


def test_delete_says_what_was_ended() -> None:
    far_end = play(
        ("auth", "AccountAdminService.DeleteUser", DeleteUserResponse(memberships=1, revoked_keys=2, sessions=3))
    )
    shown = json.loads(far_end.run("users", "delete", "user_a", "--json").stdout)
    assert shown == {"user_id": "user_a", "memberships": 1, "revoked_keys": 2, "sessions": 3, "sign_in_ways": 0}
    assert far_end.requests[0].user_id == "user_a"


def test_a_link_leads_to_the_console_that_runs_whatever_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "is_supervised", lambda data: True)
    (tmp_path / "run").mkdir()
    write_processes(tmp_path, {"console_url": "http://localhost:9000", "processes": []})
    monkeypatch.delenv("LEGATO_CONSOLE_URL", raising=False)
    assert users.console_origin(tmp_path) == "http://localhost:9000"
    assert users.console_origin(tmp_path / "none") == "http://localhost:8081"
    monkeypatch.setenv("LEGATO_CONSOLE_URL", "https://console.example.ca/, http://localhost:8081")
    assert users.console_origin(tmp_path) == "https://console.example.ca"


def test_audit_log_lists_events_by_whatever_is_given() -> None:
    changes = from_changes([Change("scopes", None, ("usage", "models")), Change("requests_per_minute", 60, None)])
    event = pb.AuditEvent(
        event_no=7, action="key.created", user_id="user_a", outcome=pb.AUDIT_OUTCOME_DONE, changes=changes
    )
    listed = pb.ListAuditEventsResponse(events=[event])
    far_end = play(("auth", "AuditService.ListAuditEvents", listed))
    filters = ["--account", "acct_a", "--user", "user_a", "--action", "key", "--object", "key_a", "--refused"]
    filters += ["--from", "2026-11-01", "--to", "2026-11-02"]
    result = far_end.run("users", "audit-log", *filters, "--json")
    [shown] = json.loads(result.stdout)
    assert (shown["event_no"], shown["action"], shown["account_id"], shown["refused"]) == (
        7,
        "key.created",
        None,
        False,
    )
    [request] = far_end.requests
    assert (request.account_id, request.user_id, request.action) == ("acct_a", "user_a", "key")
    assert (request.object_id, request.only_refused) == ("key_a", True)
    assert request.end_time.seconds - request.start_time.seconds == 24 * 3600
    assert shown["changes"] == [
        {"field": "scopes", "before": None, "after": ["usage", "models"]},
        {"field": "requests_per_minute", "before": 60, "after": None},
    ]
    table = play(("auth", "AuditService.ListAuditEvents", listed)).run("users", "audit-log").stdout
    assert "scopes: none -> usage,models, requests_per_minute: 60 -> none" in table

import json

from protos.auth.v1 import users_pb2
from protos.metering.v1 import metering_pb2
from services.chassis.errors import LegatoError, Reason
from tests.cli.played import Played, play


def played_audit(*violations: str, broken: tuple[int, ...] = ()) -> Played:
    return play(
        ("metering", "CreditAdminService.Audit", metering_pb2.AuditResponse(violations=violations)),
        (
            "auth",
            "UserAdminService.VerifyAuditEvents",
            users_pb2.VerifyAuditEventsResponse(events=1_042, broken_event_nos=broken),
        ),
    )


def test_right_books_are_ok() -> None:
    result = played_audit().run("audit", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"ok": True, "violations": [], "audit_events": 1042})
    told = played_audit().run("audit").stdout
    assert told == "The ledger is consistent.\nThe audit log is intact: 1,042 events.\n"


def test_violations_are_listed_and_exit_with_1() -> None:
    violation = "acct_1: balance is not the sum of its ledger"
    result = played_audit(violation).run("audit", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"ok": False, "violations": [violation], "audit_events": 1042}


def test_a_changed_audit_log_is_told_and_exits_with_1() -> None:
    result = played_audit(broken=(7, 8)).run("audit")
    assert result.exit_code == 1
    assert result.stdout == (
        "The ledger is consistent.\n"
        "audit log: the chain is broken at event 7\naudit log: the chain is broken at event 8\n"
    )
    told = json.loads(played_audit(broken=(7,)).run("audit", "--json").stdout)
    assert (told["ok"], told["violations"]) == (False, ["audit log: the chain is broken at event 7"])


def test_the_ledger_is_told_even_if_auth_refuses() -> None:
    refused = LegatoError(Reason.CALLER_NOT_ALLOWED, "This caller may not call this method.")
    far_end = play(
        ("metering", "CreditAdminService.Audit", metering_pb2.AuditResponse()),
        ("auth", "UserAdminService.VerifyAuditEvents", refused),
    )
    result = far_end.run("audit")
    assert result.exit_code == 1
    assert result.stdout == "The ledger is consistent.\n"

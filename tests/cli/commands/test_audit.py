import json

from protos.auth.v1 import auth_pb2
from protos.metering.v1 import metering_pb2, statements_pb2
from tests.cli.played import Played, play


def played_audit(*violations: str) -> Played:
    return play(("metering", "CreditAdminService.Audit", metering_pb2.AuditResponse(violations=violations)))


def test_right_books_are_ok() -> None:
    result = played_audit().run("audit", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"ok": True, "violations": []})
    assert played_audit().run("audit").stdout == "The ledger is consistent.\n"


def test_violations_are_listed_and_exit_with_1() -> None:
    result = played_audit("acct_1: balance is not the sum of its ledger").run("audit", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"ok": False, "violations": ["acct_1: balance is not the sum of its ledger"]}


def test_one_account_is_audited_alone() -> None:
    known = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
    answer = statements_pb2.AuditAccountResponse(violations=["request 1: counted 2 times"], entries=3)
    far_end = play(known, ("metering", "StatementService.AuditAccount", answer))
    result = far_end.run("audit", "--account", "acct_1")
    assert (result.exit_code, result.stdout) == (1, "request 1: counted 2 times\n")
    assert far_end.requests[1].account_id == "acct_1"

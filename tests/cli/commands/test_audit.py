import json

from protos.metering.v1 import metering_pb2
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

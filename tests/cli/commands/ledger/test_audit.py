import gzip
import json
from hashlib import sha256
from pathlib import Path

from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.metering.v1 import metering_pb2, statements_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import Played, play

CLOSED = metering_pb2.Closing(month="2026-10", entries=5, entries_hash="e" * 64, closing_hash="c" * 64)
CLOSINGS = ("metering", "CreditAdminService.ListClosings", metering_pb2.ListClosingsResponse(closings=[CLOSED]))


def played_audit(*violations: str, broken: tuple[int, ...] = ()) -> Played:
    return play(
        ("metering", "CreditAdminService.Audit", metering_pb2.AuditResponse(violations=violations)),
        CLOSINGS,
        (
            "auth",
            "AuditService.VerifyAuditEvents",
            users_pb2.VerifyAuditEventsResponse(events=1_042, broken_event_nos=broken),
        ),
    )


REPORT = {
    "audit_events": 1042, "closed_months": 1, "last_closed_month": "2026-10", "closing_hash": CLOSED.closing_hash,
}  # fmt: skip
LAST = f"Closed months: 1, the last 2026-10: {CLOSED.closing_hash}\n"


def test_right_books_are_ok() -> None:
    result = played_audit().run("audit", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"ok": True, "violations": [], **REPORT})
    told = played_audit().run("audit").stdout
    assert told == f"The ledger is consistent.\n{LAST}The audit log is intact: 1,042 events.\n"


def test_violations_are_listed_and_exit_with_1() -> None:
    violation = "acct_1: balance is not the sum of its ledger"
    result = played_audit(violation).run("audit", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"ok": False, "violations": [violation], **REPORT}


def test_a_changed_audit_log_is_told_and_exits_with_1() -> None:
    result = played_audit(broken=(7, 8)).run("audit")
    assert result.exit_code == 1
    assert result.stdout == (
        f"The ledger is consistent.\n{LAST}"
        "audit log: the chain is broken at event 7\naudit log: the chain is broken at event 8\n"
    )
    told = json.loads(played_audit(broken=(7,)).run("audit", "--json").stdout)
    assert (told["ok"], told["violations"]) == (False, ["audit log: the chain is broken at event 7"])


def test_the_ledger_is_told_even_if_auth_refuses() -> None:
    refused = LegatoError(Reason.CALLER_NOT_ALLOWED, Sentence.verbatim("This caller may not call this method."))
    far_end = play(
        ("metering", "CreditAdminService.Audit", metering_pb2.AuditResponse()),
        CLOSINGS,
        ("auth", "AuditService.VerifyAuditEvents", refused),
    )
    result = far_end.run("audit")
    assert result.exit_code == 1
    assert result.stdout == f"The ledger is consistent.\n{LAST}"


def test_entries_of_closed_months_are_verified_if_asked_for() -> None:
    for options, asked in (("--month 2026-10", ("2026-10", False)), ("--all", ("", True))):
        far_end = played_audit()
        assert far_end.run("audit", *options.split()).exit_code == 0
        assert (far_end.requests[0].month, far_end.requests[0].all_months) == asked
    assert played_audit().run("audit", "--all", "--month", "2026-10").exit_code == 2


def test_archive_is_compared_with_the_closing_of_its_month(tmp_path: Path) -> None:
    recorded_at_us = 1_792_000_000_000_000
    row = [1, "grant", "g1", "acct_1", 5, recorded_at_us, 0, 0, -5, "", "", 0, 0, 0, 0, 0, 0, None, None, None]
    file, text = tmp_path / "ledger-2026-10.jsonl.gz", json.dumps(row, separators=(",", ":")).encode() + b"\n"
    file.write_bytes(gzip.compress(text))
    closing = metering_pb2.Closing(month="2026-10", entries=1, entries_hash=sha256(text).hexdigest())
    closings = metering_pb2.ListClosingsResponse(closings=[closing])
    played = ("metering", "CreditAdminService.ListClosings", closings)
    result = play(played).run("audit", "--archive", str(file))
    assert (result.exit_code, result.stdout) == (0, "ledger-2026-10.jsonl.gz is what was closed.\n")
    file.write_bytes(gzip.compress(text.replace(b"g1", b"g2")))
    result = play(played).run("audit", "--archive", str(file))
    assert (result.exit_code, result.stdout) == (1, "ledger-2026-10.jsonl.gz is not what was closed in 2026-10\n")
    file.write_bytes(b"something else")
    result = play(played).run("audit", "--archive", str(file))
    assert (result.exit_code, "cannot be read" in result.stdout) == (1, True)


def test_one_account_is_audited_alone() -> None:
    known = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
    answer = statements_pb2.AuditAccountResponse(violations=["request 1: counted 2 times"], entries=3)
    far_end = play(known, ("metering", "StatementService.AuditAccount", answer))
    result = far_end.run("audit", "--account", "acct_1")
    assert (result.exit_code, result.stdout) == (1, "request 1: counted 2 times\n")
    assert far_end.requests[1].account_id == "acct_1"

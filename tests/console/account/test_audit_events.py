"""The files of the audit log: whole, proved, and of what the reader may see."""

import csv
import hmac
import io

import msgspec
import pytest

from console.account import audit_events
from services.chassis.changes import from_json
from tests.console.auth_rows import PEPPER, USER_ID
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID

AUTHENTICATED = (
    "event_no", "occurred_at_us", "action", "user_id", "account_id", "object_id", "session_id", "network", "outcome",
)  # fmt: skip


def code_of(row: dict[str, str]) -> str:
    """Computes the code of a row as docs/console.md says."""
    event = {name: int(row[name]) if name in AUTHENTICATED[:2] else row[name] for name in AUTHENTICATED}
    content = msgspec.json.encode(event)
    if row["changes"]:
        content = content[:-1] + b',"changes":' + row["changes"].encode() + b"}"
    return hmac.digest(PEPPER, b"legato audit log:" + bytes.fromhex(row["previous_code"]) + content, "sha256").hex()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_file_has_all_events_and_what_proves_them(console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several pages.
    monkeypatch.setattr(audit_events, "FILE_PAGE_SIZE", 3)
    console.backends.fill()
    console.auth.fill_operator()
    console.auth.be_operator()
    session = console.auth.sign_in()
    answer = console.get("/operator/audit-log.csv", session)
    assert answer.headers["content-disposition"] == 'attachment; filename="legato-audit-log.csv"'
    rows = rows_of(answer.text)
    numbers = [int(row["event_no"]) for row in rows]
    assert numbers == list(range(len(rows), 0, -1))
    assert [row["event_no"] for row in rows if code_of(row) != row["code"]] == []
    assert [row["previous_code"] for row in rows[:-1]] == [row["code"] for row in rows[1:]]
    [changed] = [row for row in rows if row["action"] == "spend_limits.changed"]
    assert changed["event"].endswith("of the key “Nightly report” from $5.00 a day to $10.00 a day")
    assert [change.after for change in from_json(changed["changes"])] == [10**10]
    changed["changes"] = changed["changes"].replace("10000000000", "20000000000")
    assert code_of(changed) != changed["code"]


def test_files_are_filtered_and_of_what_the_reader_may_see(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.fill_operator()
    session = console.auth.sign_in()
    of_account = rows_of(console.get("/settings/audit-log.csv?account=acct_0000000000000001", session).text)
    assert {row["account_id"] for row in of_account} == {ACCOUNT_ID}
    own = rows_of(console.get("/security/audit-log.csv?user=user_2", session).text)
    assert {row["user_id"] for row in own} == {USER_ID}
    keys = rows_of(console.get("/settings/audit-log.csv?action=key&object=key_0000000000000001", session).text)
    assert [row["action"] for row in keys] == ["key.updated", "key.created"]
    refused = rows_of(console.get("/security/audit-log.csv?refused=on", session).text)
    assert [row["outcome"] for row in refused] == ["refused"]

"""Names of keys in reports."""

import csv
import io

from services.chassis.access_tokens import AccountRole
from tests.console.auth_rows import MEMBER_ID, USER_ID
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness


def test_members_see_their_own_keys_first_and_all_if_they_ask(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.MEMBER)
    console.backends.fill()
    session = console.auth.sign_in()
    own = console.get("/usage?by=key", session).text
    body = own[own.index("Usage by key") :]
    assert "Nightly report" in body
    assert "Website chat" not in body
    assert "Website chat" in (console.get("/usage?by=key&keys=all", session).text[own.index("Usage by key") :])
    for path, expected in (("/requests.csv", {USER_ID}), ("/requests.csv?keys=all", {USER_ID, MEMBER_ID})):
        rows = csv.DictReader(io.StringIO(console.get(path, session).text))
        assert {console.auth.key(row["key_id"]).created_by for row in rows} == expected


def test_revoked_keys_stay_in_reports_by_their_names(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    for path in ("/requests", "/credit/entries"):
        assert "Contractor" in console.get(path, session).text
    assert "Contractor · Revoked" in console.get("/usage", session).text


def test_reports_have_ids_while_names_are_not_known(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.fail = {"KeyAdminService.ListKeys": not_answering()}
    text = console.get("/usage?by=key", console.auth.sign_in()).text
    assert "The names of keys cannot be shown right now" in text
    assert "key_0000000000000001" in text


def test_a_file_names_every_key_however_many_there_are(console: ConsoleHarness) -> None:
    console.backends.add_many_keys(1_200)
    answer = console.get("/usage.csv", console.auth.sign_in())
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["key_name"] for row in rows] == [f"Service {number:04d}" for number in range(1_200)]
    assert {row["created_by"] for row in rows} == {"Ada Lovelace"}

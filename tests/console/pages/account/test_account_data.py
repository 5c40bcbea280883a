"""An account's data: the file with all of it, and the closing, step by step, whatever does not answer in between."""

import csv
import io
import json
import zipfile
from pathlib import Path

from services.chassis.access_tokens import AccountRole
from tests.console.auth_rows import MEMBER_ID, WEBHOOK_URL
from tests.console.backends import not_answering
from tests.console.grounding import NOTES, WARRANTY
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID

CLOSE = "/my-data/close"


def rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(archive.read(name).decode())))


def fill(console: ConsoleHarness) -> str:
    console.backends.fill()
    console.backends.fill_notices()
    console.grounding.fill()
    return console.auth.sign_in()


def test_the_export_has_all_that_the_account_keeps(console: ConsoleHarness) -> None:
    session = fill(console)
    archive = zipfile.ZipFile(io.BytesIO(console.get_bytes("/my-data/account.zip", session)))
    assert archive.testzip() is None
    account = json.loads(archive.read("account.json"))
    assert account["account"]["account_id"] == ACCOUNT_ID
    # Addresses of webhooks may have secrets in them.
    assert account["webhook_hosts"] == ["hooks.example.ca"]
    assert {each["user_id"]: each["role"] for each in rows(archive, "members.csv")}[MEMBER_ID] == "member"
    assert len(rows(archive, "keys.csv")) == len(console.auth.list_keys())
    # The same figures as on the pages.
    ledger, usage = rows(archive, "ledger.csv"), rows(archive, "usage.csv")
    assert ledger == list(csv.DictReader(io.StringIO(console.get("/credit.csv", session).text)))
    assert rows(archive, "requests.csv") == list(
        csv.DictReader(io.StringIO(console.get("/requests.csv?keys=all", session).text))
    )
    shown = console.get("/usage.csv?period=90&by=class&keys=all", session).text
    assert sum(int(each["cost_nanos"]) for each in usage) == sum(
        int(each["cost_nanos"]) for each in csv.DictReader(io.StringIO(shown))
    )
    assert {each["account_id"] for each in rows(archive, "audit-log.csv")} == {ACCOUNT_ID}
    assert {each.get("text") for each in json.loads(archive.read("notes.json"))} >= set(NOTES)
    documents = json.loads(archive.read("documents.json"))
    assert documents[0]["name"] == "Zephyr manual.pdf"
    assert archive.read(f"documents/{documents[0]['attachment_id']}.txt").decode() == f"{WARRANTY}\n"
    content = b"".join(archive.read(name) for name in archive.namelist()).decode()
    for secret in ("whsec_", WEBHOOK_URL, "digest", session):
        assert secret not in content


def test_an_export_without_a_service_is_a_page_and_no_file_that_is_cut_off(console: ConsoleHarness) -> None:
    session = fill(console)
    console.backends.fail = {"GroundingAdminService.ListNotes": not_answering()}
    answer = console.get("/my-data/account.zip", session)
    assert answer.status == 503
    assert answer.headers["content-type"].startswith("text/html")
    # Where the service has no notes and documents, the file has none.
    console.backends.fail = {}
    console.grounding.is_configured = False
    console.backends.renew()
    archive = zipfile.ZipFile(io.BytesIO(console.get_bytes("/my-data/account.zip", session)))
    assert "notes.json" not in archive.namelist()


def test_only_owners_export_and_close_their_account(console: ConsoleHarness) -> None:
    session = fill(console)
    for role in (AccountRole.MEMBER, AccountRole.VIEWER):
        console.auth.set_role(role)
        assert console.get("/my-data/account.zip", session).status == 403
        assert console.get(CLOSE, session).status == 403
        assert console.post(CLOSE, {}, session).status == 403
    assert console.auth.account().closed_at_us is None
    # The account is the token's, whatever a form says.
    console.auth.set_role(AccountRole.OWNER)
    console.backends.fill_operator()
    other = "acct_0000000000000001"
    console.post(CLOSE, {"account_id": other}, session)
    assert console.auth.account(other).closed_at_us is None


def test_closing_ends_everything_but_the_books(console: ConsoleHarness, tmp_path: Path) -> None:
    session = fill(console)
    page = console.get(CLOSE, session).text
    assert "7 are left" in page or "8 are left" in page
    assert "forfeited" in page
    before = console.get("/credit.csv", session).text
    answer = console.post(CLOSE, {}, session)
    assert (answer.status, "The account is closed" in answer.text) == (200, True)
    account = console.auth.account()
    assert None not in (account.closed_at_us, account.suspended_at_us)
    assert all(each.revoked_at_us is not None for each in console.auth.list_keys())
    assert (console.auth.webhooks(), console.auth.invitations(), console.grounding.notes()) == ([], [], [])
    assert console.grounding.documents() == []
    assert len(console.auth.users()) == 2
    # The visitor is signed in, and belongs to no account.
    shown = console.get("/my-data", session)
    assert (shown.status, "Leave the account" in shown.text) == (200, False)
    assert console.get(CLOSE, session).status == 200
    assert "needs an account" in console.get(CLOSE, session).text or "no account" in console.get(CLOSE, session).text
    # An operator can still show the books.
    console.auth.join(AccountRole.VIEWER)
    assert console.get("/credit.csv", session).text == before


def test_closing_goes_on_where_a_service_did_not_answer(console: ConsoleHarness) -> None:
    session = fill(console)
    steps = ("AccountAdminService.CloseAccount", "ContentService.EraseAccount", "AccountAdminService.EndMemberships")
    for number, step in enumerate(steps):
        console.backends.fail = {step: not_answering()}
        answer = console.post(CLOSE, {}, session)
        assert answer.status == 503, step
        # Access ends first, and whoever can go on stays until the end.
        assert (console.auth.account().closed_at_us is not None) is (number > 0)
        assert (console.grounding.notes() == []) is (number > 1)
        assert answer.text.count("Done<") == number
        assert ("Go on closing the account" in console.get("/my-data", session).text) is (number > 0)
    console.backends.fail = {}
    assert "The account is closed" in console.post(CLOSE, {}, session).text


def test_what_cannot_be_seen_is_said(console: ConsoleHarness) -> None:
    session = fill(console)
    console.backends.fail = {
        name: not_answering() for name in ("GroundingAdminService.ListNotes", "MeteringService.GetBalance")
    }
    page = console.get(CLOSE, session)
    assert page.status == 200
    for shown in ("How many are left cannot be told right now", "The credit cannot be shown right now"):
        assert shown in page.text

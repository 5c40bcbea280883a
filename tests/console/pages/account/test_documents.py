import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.console.backends import not_answering
from tests.console.harness import COOKIE, ConsoleHarness
from tests.console.metering import ACCOUNT_ID
from tests.support.pdfs import make_pdf
from tests.support.waiting import until


def sent(console: ConsoleHarness) -> list[Any]:
    return [request for request in console.backends.requests if hasattr(request, "piece")]


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_documents_are_listed_with_size_passages_and_state(console: ConsoleHarness) -> None:
    console.grounding.fill()
    text = console.get("/documents", console.auth.sign_in()).text
    for shown in ("Zephyr manual.pdf", "84 pages", "211", "2.3 MB", "14 KB", "Ready", "Cannot be decrypted"):
        assert shown in text


def test_a_form_adds_a_document_in_pieces(console: ConsoleHarness) -> None:
    console.grounding.largest_document_bytes = 10**6
    content = b"A word." + b" " * 300_000
    answer = console.send_file("/documents", console.auth.sign_in(), content, "r\u00e9sum\u00e9.txt")
    assert (answer.status, answer.headers["location"]) == (303, "/documents")
    [document] = console.grounding.documents()
    assert any(f"document-added.{document.passages}" in cookie for cookie in answer.cookies)
    head, *rest = sent(console)
    assert (head.account_id, head.name, head.size_bytes) == (ACCOUNT_ID, "r\u00e9sum\u00e9.txt", len(content))
    pieces = [len(request.piece) for request in (head, *rest)]
    assert sum(pieces) == document.size_bytes == len(content)
    assert max(pieces) <= 64 * 1024
    assert len(pieces) >= 4


def test_a_script_is_told_how_far_a_document_is(console: ConsoleHarness) -> None:
    answer = console.send_file("/documents/upload", console.auth.sign_in(), b"Hello", "a.txt")
    assert answer.status == 200
    assert lines(answer.text) == [
        {"stage": "reading", "done": 1, "total": 1},
        {"stage": "indexing", "done": 1, "total": 1},
        {"stage": "done", "passages": 1},
    ]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("name", "content", "status", "message"),
    [
        ("big.pdf", b"x" * 70_000, 413, "A document may have at most 0.0625 MB."),
        ("huge.pdf", b"x" * 5_000_000, 413, "A document may have at most 0.0625 MB."),
        ("", b"", 400, "Choose a file."),
    ],
    ids=["large", "huge", "none"],
)
def test_what_cannot_be_taken_is_told_to_the_form_and_to_the_script(
    console: ConsoleHarness, name: str, content: bytes, status: int, message: str
) -> None:
    session = console.auth.sign_in()
    page = console.send_file("/documents", session, content, name)
    assert page.status == status
    assert message in page.text
    assert "<h1>Documents</h1>" in page.text
    told = console.send_file("/documents/upload", session, content, name)
    assert told.status == status
    assert message in json.loads(told.text)["message"]
    assert console.grounding.documents() == []


def test_a_refusal_after_reading_is_the_last_line(console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    session, scan = console.auth.sign_in(), make_pdf([""])
    page = console.send_file("/documents", session, scan, "scan.pdf")
    assert (page.status, "The document has no text." in page.text) == (400, True)
    told = console.send_file("/documents/upload", session, scan, "scan.pdf")
    assert lines(told.text)[-1] == {"message": "The document has no text."}
    monkeypatch.setattr("services.router.grounding.documents.attachments.PASSAGES_MOST", 0)
    answer = console.send_file("/documents/upload", console.auth.sign_in(), b"Hello", "a.txt")
    assert lines(answer.text)[-1] == {"message": "The document has too much text: split it into several."}


def test_a_router_that_is_away_is_told_of(console: ConsoleHarness) -> None:
    console.backends.fail = {"GroundingAdminService.AddAttachment": not_answering()}
    session = console.auth.sign_in()
    assert console.send_file("/documents/upload", session, b"Hello", "a.txt").status == 503
    assert "not answering" in console.send_file("/documents", session, b"Hello", "a.txt").text


def test_a_viewer_and_a_stranger_upload_nothing(console: ConsoleHarness) -> None:
    assert console.send_file("/documents", "", b"Hello").status == 303
    assert console.send_file("/documents/upload", "", b"Hello").status == 401
    console.auth.set_role(AccountRole.VIEWER)
    session = console.auth.sign_in()
    assert console.send_file("/documents", session, b"Hello").status == 403
    assert console.send_file("/documents/upload", session, b"Hello").status == 403
    assert not any("AddAttachment" in call for call in console.backends.calls)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"document=x"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"nothing of the kind"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n--b--\r\n'),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="document"; filename="a.txt"\r\n\r\nnot the end',
        ),
    ],
    ids=["urlencoded", "no-boundary", "not-multipart", "no-file", "incomplete"],
)
def test_a_form_that_is_none_adds_nothing(console: ConsoleHarness, content_type: str, body: bytes) -> None:
    headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": content_type}
    answer = console._ask("POST", "/documents/upload", console.auth.sign_in(), headers, body)
    assert answer.status == 400
    assert console.grounding.documents() == []


def begin_upload(console: ConsoleHarness, path: str, session: str) -> http.client.HTTPConnection:
    """Sends the beginning of a form with a file, and leaves the rest out."""
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    connection.putrequest("POST", path, skip_host=True)
    for name, value in {
        "Host": f"localhost:{console.port}",
        "Sec-Fetch-Site": "same-origin",
        "Cookie": f"{COOKIE}={session}",
        "Content-Type": "multipart/form-data; boundary=b",
        "Content-Length": "60000",
    }.items():
        connection.putheader(name, value)
    head = b'--b\r\nContent-Disposition: form-data; name="document"; filename="a.txt"\r\n\r\nHello'
    connection.endheaders(head)
    return connection


def test_a_sender_that_is_too_slow_for_the_router_is_told_so(console: ConsoleHarness) -> None:
    slow = LegatoError(Reason.BODY_TIMEOUT, Sentence.verbatim("The document arrives too slowly."), param="document")
    console.backends.fail = {"GroundingAdminService.AddAttachment": slow}
    session = console.auth.sign_in()
    for path, said in (("/documents", "<h1>Documents</h1>"), ("/documents/upload", '"message"')):
        with closing(begin_upload(console, path, session)) as connection:
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 408
        assert said in text
        assert "arrives too slowly" in text
    assert console.grounding.documents() == []


@pytest.mark.parametrize("reason", [Reason.TOO_MANY_AT_ONCE, Reason.SATURATED])
def test_what_has_to_wait_is_told_to_the_form_and_to_the_script(console: ConsoleHarness, reason: Reason) -> None:
    wait = LegatoError(reason, Sentence.verbatim("Please retry in a minute."), param="document")
    console.backends.fail = {"GroundingAdminService.AddAttachment": wait}
    session = console.auth.sign_in()
    page = console.send_file("/documents", session, b"Hello", "a.txt")
    assert page.status == 429
    assert "Please retry in a minute." in page.text
    assert "<h1>Documents</h1>" in page.text
    assert json.loads(console.send_file("/documents/upload", session, b"Hello", "a.txt").text) == {
        "message": "Please retry in a minute."
    }


async def test_a_sender_that_leaves_adds_nothing(console: ConsoleHarness) -> None:
    connection = begin_upload(console, "/documents", console.auth.sign_in())
    await until(lambda: len(sent(console)) == 1)
    connection.close()
    await until(lambda: console.backends.ended_streams == 1)
    assert console.grounding.documents() == []


def test_a_document_is_removed(console: ConsoleHarness) -> None:
    console.grounding.fill()
    attachment_id = console.grounding.documents()[0].attachment_id
    answer = console.post("/documents/remove", {"attachment_id": attachment_id}, console.auth.sign_in())
    assert answer.status == 303
    assert attachment_id not in [each.attachment_id for each in console.grounding.documents()]


def test_nothing_of_a_document_is_in_the_log(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.send_file("/documents", session, b"Confidential", "Salaries.txt")
    console.send_file("/documents/upload", session, b"Confidential" * 9000, "Salaries.txt")
    for said in ("Confidential", "Salaries"):
        assert said not in console.log_stream.getvalue()


def test_the_console_writes_no_file(console: ConsoleHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness serves in this process: whatever made a temporary file would find a folder that is none."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    console.grounding.largest_document_bytes = 10**7
    answer = console.send_file("/documents", console.auth.sign_in(), b"A word." + b" " * 3_000_000)
    assert answer.status == 303

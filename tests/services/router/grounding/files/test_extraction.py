"""Documents that are read in a process of their own."""

import asyncio
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.grounding.files.extraction import Extraction, OnPage, reader_command, started_reader
from services.router.grounding.files.reader import MEMORY_BYTES, PROCESSOR_S
from services.router.grounding.files.sealed_file import SealedFile
from services.router.grounding.records import Document, DocumentKind
from tests.support.pdfs import make_pdf, make_pdf_bomb
from tests.support.waiting import wait_until


def extraction(**limits: float) -> Extraction:
    return Extraction(10, Log("router", io.StringIO()), **limits)


async def read(
    document: bytes, reading: Extraction | None = None, on_page: OnPage = lambda done, total: None
) -> Document:
    with tempfile.TemporaryDirectory() as folder, SealedFile(Path(folder)) as received:
        await received.append(document)
        return await (reading or extraction()).read(received, on_page)


async def refusal_of(document: bytes, **limits: float) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await read(document, extraction(**limits))
    assert refusal.value.reason is Reason.REQUEST_INVALID
    return refusal.value


async def test_pages_are_read_in_their_order_and_told_as_they_come() -> None:
    told: list[tuple[int, int]] = []
    document = make_pdf(["One.", "", "Three."])
    found = await read(document, on_page=lambda done, total: told.append((done, total)))
    assert (found.kind, found.size_bytes, found.pages) == (DocumentKind.PDF, len(document), ["One.", "", "Three."])
    assert told == [(1, 3), (2, 3), (3, 3)]


async def test_long_text_arrives_whole() -> None:
    text = "Line after line, and none is lost. ü\n" * 20_000
    assert (await read(text.encode())).pages == [text]


async def test_document_that_unpacks_to_far_more_than_it_is_is_refused() -> None:
    bomb = make_pdf_bomb(unpacked_bytes=90_000_000)
    assert len(bomb) < 1_000_000
    assert (await refusal_of(bomb)).param == "document"


def test_reader_may_neither_take_much_nor_write_anything() -> None:
    with subprocess.Popen(reader_command(10), env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        # It asks for the document only after it has bound itself.
        limits = wait_until(lambda: _limits_of(reader.pid))
        assert (limits["address space"], limits["cpu time"], limits["file size"]) == (MEMORY_BYTES, PROCESSOR_S, 0)
        reader.stdin.close()


async def test_reader_is_told_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_GROUNDING_KEY", "1:secret")
    async with started_reader(pages_most=10) as reader:
        assert reader.stdout is not None
        # It runs its own program by now, and has said so.
        await reader.stdout.readline()
        environ = await asyncio.to_thread(Path(f"/proc/{reader.pid}/environ").read_bytes)
    assert environ == b""


def _limits_of(process_id: int) -> dict[str, int]:
    """Returns the soft ones, once all of ours are there."""
    lines = Path(f"/proc/{process_id}/limits").read_text().splitlines()[1:]
    limits = {line[:26].removeprefix("Max ").strip(): line[26:].split()[0] for line in lines}
    found = {name: int(limit) for name, limit in limits.items() if limit.isdigit()}
    is_bound = found.get("core file size") == 0 and found.keys() >= {"address space", "cpu time", "file size"}
    return found if is_bound else {}


async def test_document_that_takes_too_long_is_given_up() -> None:
    assert "too long" in (await refusal_of(b"Read me.", within_s=0.01)).message


async def test_refusal_says_why_and_quotes_nothing() -> None:
    refusal = await refusal_of(b"secretword\x00")
    assert "neither text" in refusal.message
    assert "secretword" not in refusal.message


@pytest.mark.parametrize(
    ("holds", "event", "said"),
    [
        (["namespaces", "landlock", "seccomp"], "reader.isolated", "namespaces+landlock+seccomp"),
        (["seccomp"], "reader.isolated", "seccomp"),
        (["landlock"], "reader.not_isolated", "network open; landlock holds"),
        ([], "reader.not_isolated", "files and network open; nothing holds"),
    ],
)
async def test_log_says_once_what_holds(
    holds: list[str], event: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    made = Extraction(10, Log("router", written))
    lines = [{"holds": holds}, {"kind": "text", "pages": 1}, {"page": 1, "text": "Read."}]
    program = "import sys; sys.stdin.buffer.read(); sys.stdout.write(sys.argv[1])"
    answer = "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
    monkeypatch.setattr(
        "services.router.grounding.files.extraction.reader_command",
        lambda pages_most: [sys.executable, "-c", program, answer],
    )
    for _ in range(2):
        await read(b"Read.", made)
    [line] = written.getvalue().splitlines()
    assert (msgspec.json.decode(line)["event"], msgspec.json.decode(line)["reason"]) == (event, said)

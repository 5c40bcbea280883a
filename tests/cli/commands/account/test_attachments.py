import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from legato_protos.router.v1 import grounding_pb2_grpc
from legato_protos.router.v1.grounding_pb2 import RemoveAttachmentResponse
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.cli.grounding_harness import ACCOUNT, GroundingHarness, grounding_harness
from tests.support.pdfs import make_pdf


@pytest.fixture
async def harness(tmp_path: Path, log: Log) -> AsyncIterator[GroundingHarness]:
    async with grounding_harness(tmp_path / "data", log, attachment_bytes=300_000, attachment_pages=3) as harness:
        yield harness


async def test_documents_are_added_listed_and_removed(harness: GroundingHarness, tmp_path: Path) -> None:
    # Of several pieces, so that none is lost on the way.
    text = "".join(f"Chapter {number}: something else.\n\n" for number in range(6_000))
    (tmp_path / "book.md").write_text(text)
    (tmp_path / "manual.bin").write_bytes(make_pdf(["One.", "Two."]))
    book = json.loads((await harness.run("attachments", "add", ACCOUNT, str(tmp_path / "book.md"))).stdout)
    assert (book["name"], book["kind"], book["size_bytes"], book["pages"]) == ("book.md", "text", len(text), 1)
    assert book["passages"] > 100
    manual = json.loads((await harness.run("attachments", "add", ACCOUNT, str(tmp_path / "manual.bin"))).stdout)
    assert (manual["name"], manual["kind"], manual["pages"]) == ("manual.bin", "pdf", 2)
    assert json.loads((await harness.run("attachments", "list", ACCOUNT)).stdout) == [book, manual]
    assert (await harness.run("attachments", "remove", ACCOUNT, book["attachment_id"])).exit_code == 0
    assert json.loads((await harness.run("attachments", "list", ACCOUNT)).stdout) == [manual]


async def test_document_that_is_too_large_or_no_document_is_refused(harness: GroundingHarness, tmp_path: Path) -> None:
    for name, content, message in (
        ("large.txt", b"x" * 300_001, "at most"),
        ("long.pdf", make_pdf(["x"] * 4), "has 4 pages; the limit is 3"),
        ("picture.txt", b"\x89PNG\r\n\x1a\n\x00\xff", "neither text"),
        ("empty.md", b"", "no text"),
    ):
        (tmp_path / name).write_bytes(content)
        result = await harness.run("attachments", "add", ACCOUNT, str(tmp_path / name))
        assert result.exit_code == 1
        assert message in result.stderr
    assert (await harness.run("attachments", "add", "acct_2", str(tmp_path / "long.pdf"))).exit_code == 1
    assert (await harness.run("attachments", "remove", ACCOUNT, "att_none")).exit_code == 1
    assert json.loads((await harness.run("attachments", "list", ACCOUNT)).stdout) == []


async def test_document_whose_name_is_no_text_is_kept_all_the_same(harness: GroundingHarness, tmp_path: Path) -> None:
    # Latin-1, as Python hands it on.
    file = tmp_path / "caf\udce9.txt"
    file.write_text("Tea and coffee.")
    added = json.loads((await harness.run("attachments", "add", ACCOUNT, str(file))).stdout)
    assert added["name"] == "caf\ufffd.txt"


class Patient(grounding_pb2_grpc.GroundingAdminServiceServicer):
    """Notes how long the caller is ready to wait."""

    waits_s = 0.0

    async def RemoveAttachment(self, request: Any, context: Any) -> RemoveAttachmentResponse:
        self.waits_s = context.time_remaining()
        return RemoveAttachmentResponse()


async def test_removal_is_waited_for_as_long_as_the_largest_document_takes(log: Log) -> None:
    patient = Patient()  # type: ignore[abstract]
    server = RpcServer("127.0.0.1:0", [patient], log, insecure_tcp=True)
    await server.start()
    removed = await GroundingHarness(f"127.0.0.1:{server.port}").run("attachments", "remove", ACCOUNT, "att_1")
    await server.stop(0)
    assert removed.exit_code == 0
    assert patient.waits_s > 300


async def test_file_that_is_not_there_is_misuse(harness: GroundingHarness, tmp_path: Path) -> None:
    assert (await harness.run("attachments", "add", ACCOUNT, str(tmp_path / "none.txt"))).exit_code == 2


async def test_attachments_that_are_not_configured_say_which_setting_is_missing(tmp_path: Path, log: Log) -> None:
    (tmp_path / "note.txt").write_text("Words.")
    async with grounding_harness(tmp_path / "data", log, attachments=False) as harness:
        result = await harness.run("attachments", "add", ACCOUNT, str(tmp_path / "note.txt"))
        assert result.exit_code == 1
        assert "LEGATO_ATTACHMENTS=true" in result.stderr

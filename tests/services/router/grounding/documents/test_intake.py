"""Documents that are added at once, by several accounts, to a router that is not overrun by them."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import msgspec
import pytest

from legato_protos.router.v1.grounding_pb2 import AddAttachmentRequest, AddAttachmentResponse, AddNoteRequest
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.telemetry.log import Log
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.documents.intake import BY_ACCOUNT_MOST, Intake, Progress
from services.router.grounding.settings import GroundingSettings
from tests.cli.grounding_harness import ACCOUNT, grounding_harness
from tests.support.fakes import FakeClock

SIZE_BYTES = 200_000
ONE_BYTE_SHORT = b"x" * (SIZE_BYTES - 1)
OTHER = "acct_2"

Call = grpc.aio.StreamStreamCall[AddAttachmentRequest, AddAttachmentResponse]


class Uploads:
    """Sends documents, and leaves them open where it is told to."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = GroundingAdminServiceStub(channel)

    async def open(self, account_id: str, piece: bytes = ONE_BYTE_SHORT, size_bytes: int = SIZE_BYTES) -> Call:
        """Sends all but the end, and returns when the router has that; raises if it refuses."""
        call: Call = self.stub.AddAttachment()
        head = AddAttachmentRequest(account_id=account_id, name="a.txt", size_bytes=size_bytes, piece=piece)
        try:
            await call.write(head)
            await call.read()
        except grpc.RpcError as error:
            raise from_rpc_error(error, "The router") from None
        return call

    async def finish(self, call: Call, piece: bytes = b".") -> AddAttachmentResponse:
        await call.write(AddAttachmentRequest(piece=piece))
        await call.done_writing()
        last = AddAttachmentResponse()
        while (response := await call.read()) is not grpc.aio.EOF:
            last = response  # type: ignore[assignment]
        return last


@asynccontextmanager
async def uploading(folder: Path, log: Log, **settings: int) -> AsyncIterator[Uploads]:
    async with grounding_harness(folder, log, **settings) as harness, open_channel(harness.address) as channel:
        yield Uploads(channel)


@pytest.fixture
async def uploads(tmp_path: Path, log: Log) -> AsyncIterator[Uploads]:
    async with uploading(tmp_path, log) as uploads:
        yield uploads


def files_in(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.iterdir()}


async def refusal_of(uploads: Uploads, account_id: str) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await uploads.open(account_id)
    return refusal.value


async def test_account_has_a_few_uploads_open_and_others_add_theirs(uploads: Uploads) -> None:
    opened = [await uploads.open(ACCOUNT) for _ in range(BY_ACCOUNT_MOST)]
    assert (await refusal_of(uploads, ACCOUNT)).reason is Reason.TOO_MANY_AT_ONCE
    last = await uploads.finish(await uploads.open(OTHER))
    assert last.attachment.size_bytes == SIZE_BYTES
    # A place is free again when one is complete, or its sender has left.
    assert (await uploads.finish(opened.pop())).attachment.attachment_id
    opened.append(await uploads.open(ACCOUNT))
    opened.pop().cancel()
    while True:
        try:
            opened.append(await uploads.open(ACCOUNT))
            break
        except LegatoError:
            # The router has not noticed yet.
            await asyncio.sleep(0)
    for call in opened:
        call.cancel()


async def test_documents_of_all_accounts_have_so_much_space(tmp_path: Path, log: Log) -> None:
    space = {"attachment_bytes": SIZE_BYTES, "upload_bytes": 2 * SIZE_BYTES}
    async with uploading(tmp_path, log, **space) as uploads:
        opened = [await uploads.open(f"acct_{number}") for number in range(2)]
        assert (await refusal_of(uploads, OTHER)).reason is Reason.SATURATED
        assert (await uploads.finish(opened.pop())).attachment.attachment_id
        assert (await uploads.finish(await uploads.open(OTHER))).attachment.attachment_id
        opened.pop().cancel()


async def test_space_on_the_disk_is_given_back(tmp_path: Path, log: Log) -> None:
    async with uploading(tmp_path, log) as uploads:
        call = await uploads.open(ACCOUNT)
        # Neither has the file a name, nor the disk a word of it.
        assert files_in(tmp_path) == {"router"}
        await uploads.finish(call)
        assert files_in(tmp_path) == {"router"}


async def test_documents_that_several_accounts_add_at_once_are_all_added(uploads: Uploads) -> None:
    async def add(account_id: str) -> str:
        return (await uploads.finish(await uploads.open(account_id))).attachment.attachment_id

    accounts = ["acct_1", "acct_1", "acct_1", "acct_2", "acct_3", "acct_4", "acct_5"]
    added = await asyncio.gather(*map(add, accounts))
    assert len({*added} - {""}) == len(accounts)


async def test_notes_are_kept_while_documents_are_added(uploads: Uploads) -> None:
    book = "".join(f"Chapter {number} of the book is about pumps.\n\n{'word ' * 200}\n\n" for number in range(500))
    call = await uploads.open(ACCOUNT, book.encode(), len(book) + 1)
    adding = asyncio.create_task(uploads.finish(call))
    await uploads.stub.AddNote(AddNoteRequest(account_id=OTHER, text="I live in Ottawa."))
    assert not adding.done()
    assert (await adding).attachment.passages == 500


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


def intake(attachments: Attachments, clock: FakeClock, folder: Path, log: Log, grace_s: float = 20.0) -> Intake:
    settings = GroundingSettings(data=folder, attachment_bytes=10**6, upload_bytes=10**6)
    return Intake(attachments, settings, clock, log, grace_s=grace_s)


class Told(Progress):
    def __init__(self) -> None:
        self.stages: list[int] = []

    def report(self, stage: int, done: int, total: int) -> None:
        self.stages.append(stage)

    async def delivered(self) -> None:
        pass


async def sent(*pieces: bytes, then: asyncio.Event | None = None) -> AsyncIterator[AddAttachmentRequest]:
    for piece in pieces:
        yield AddAttachmentRequest(account_id=ACCOUNT, name="a.txt", size_bytes=100, piece=piece)
    if then is not None:
        await then.wait()


async def test_document_that_ends_before_its_announced_size_is_not_kept(
    attachments: Attachments, clock: FakeClock, tmp_path: Path, log: Log
) -> None:
    with pytest.raises(LegatoError, match="not sent completely"):
        await intake(attachments, clock, tmp_path, log).add(sent(b"x" * 50, b"x" * 49), Told())
    assert await attachments.list_of(ACCOUNT) == []
    assert (await intake(attachments, clock, tmp_path, log).add(sent(b"x" * 50, b"x" * 50), Told())).size_bytes == 100


@pytest.mark.parametrize("pieces", [(), (b"Hello",)], ids=["nothing", "a part"])
async def test_document_that_arrives_too_slowly_is_given_up(
    pieces: tuple[bytes, ...], attachments: Attachments, clock: FakeClock, tmp_path: Path, log: Log
) -> None:
    slow = intake(attachments, clock, tmp_path, log, grace_s=0.01)
    with pytest.raises(LegatoError) as refusal:
        await slow.add(sent(*pieces, then=asyncio.Event()), Told())
    assert refusal.value.reason is Reason.BODY_TIMEOUT
    assert "at least 8 KB a second" in refusal.value.message
    # Its place is free.
    assert slow._limits._running.total() == 0


async def test_document_that_arrives_fast_enough_has_more_time_with_each_piece(
    attachments: Attachments, clock: FakeClock, tmp_path: Path, log: Log
) -> None:
    async def pieces() -> AsyncIterator[AddAttachmentRequest]:
        yield AddAttachmentRequest(account_id=ACCOUNT, size_bytes=500_003, piece=b"word " * 100_000)
        # Longer than any document may take, and less than this one.
        await asyncio.sleep(2 * grace_s)
        yield AddAttachmentRequest(piece=b"end")

    grace_s = 0.5
    kept = await intake(attachments, clock, tmp_path, log, grace_s).add(pieces(), Told())
    assert kept.size_bytes == 500_003


async def test_disk_without_space_is_told_to_the_operator_and_not_to_the_owner(
    attachments: Attachments, clock: FakeClock, tmp_path: Path, written: io.StringIO
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    with pytest.raises(LegatoError) as refusal:
        await intake(attachments, clock, no_folder, Log("router", written)).add(sent(b"Hello"), Told())
    assert refusal.value.reason is Reason.UNAVAILABLE
    assert msgspec.json.decode(written.getvalue())["event"] == "document.not_received"


async def test_nothing_more_is_received_than_is_told(
    attachments: Attachments, clock: FakeClock, tmp_path: Path, log: Log
) -> None:
    """One who sends and does not read would have the answers pile up."""

    class NeverRead(Told):
        async def delivered(self) -> None:
            await asyncio.Event().wait()

    told = NeverRead()
    with pytest.raises(LegatoError):
        await intake(attachments, clock, tmp_path, log, grace_s=0.05).add(sent(b"a", b"b", b"c"), told)
    assert len(told.stages) == 1

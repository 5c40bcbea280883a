"""The owner's RPCs, beyond what the command line asks of them (tests/cli/commands/)."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from legato_protos.router.v1.grounding_pb2 import (
    ATTACHMENT_STAGE_INDEXING,
    ATTACHMENT_STAGE_READING,
    ATTACHMENT_STAGE_RECEIVING,
    AddAttachmentRequest,
    AddAttachmentResponse,
    AddNoteRequest,
)
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.telemetry.log import Log
from tests.cli.grounding_harness import ACCOUNT, GroundingHarness, grounding_harness


@pytest.fixture
async def harness(tmp_path: Path, log: Log) -> AsyncIterator[GroundingHarness]:
    async with grounding_harness(tmp_path, log, attachment_bytes=1_000) as harness:
        yield harness


async def attach(harness: GroundingHarness, *requests: AddAttachmentRequest) -> list[AddAttachmentResponse]:
    async with open_channel(harness.address) as channel:
        try:
            return [response async for response in GroundingAdminServiceStub(channel).AddAttachment(each(requests))]
        except grpc.RpcError as error:
            raise from_rpc_error(error, "The router") from None


def each(requests: tuple[AddAttachmentRequest, ...]) -> Iterator[AddAttachmentRequest]:
    yield from requests


async def test_document_is_told_of_from_the_first_byte_to_the_last_passage(harness: GroundingHarness) -> None:
    head = AddAttachmentRequest(account_id=ACCOUNT, name="a.txt", size_bytes=12, piece=b"Hello ")
    *told, last = await attach(harness, head, AddAttachmentRequest(piece=b"world!"))
    assert [(response.progress.stage, response.progress.done, response.progress.total) for response in told] == [
        (ATTACHMENT_STAGE_RECEIVING, 6, 12),
        (ATTACHMENT_STAGE_RECEIVING, 12, 12),
        (ATTACHMENT_STAGE_READING, 1, 1),
        (ATTACHMENT_STAGE_INDEXING, 1, 1),
    ]
    assert (last.attachment.name, last.attachment.passages) == ("a.txt", 1)


async def test_document_that_says_it_is_too_large_is_refused_before_it_has_come(harness: GroundingHarness) -> None:
    for head in (
        AddAttachmentRequest(account_id=ACCOUNT, size_bytes=1_001, piece=b"x"),
        AddAttachmentRequest(account_id=ACCOUNT, size_bytes=1, piece=b"x" * 1_001),
    ):
        with pytest.raises(LegatoError) as refusal:
            await attach(harness, head)
        assert refusal.value.reason is Reason.BODY_TOO_LARGE


async def test_document_or_note_without_an_account_is_refused(harness: GroundingHarness) -> None:
    for requests in ((), (AddAttachmentRequest(name="a.txt", size_bytes=2, piece=b"Hi"),)):
        with pytest.raises(LegatoError) as refusal:
            await attach(harness, *requests)
        assert refusal.value.reason is Reason.REQUEST_INVALID
    async with open_channel(harness.address) as channel:
        with pytest.raises(grpc.RpcError):
            await GroundingAdminServiceStub(channel).AddNote(AddNoteRequest(text="x"))

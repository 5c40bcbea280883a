"""Takes in a document: receives it on the disk, waits for the account's turn, reads and indexes it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.telemetry.log import Log
from services.router.grounding.attachments import Attachments
from services.router.grounding.files.extraction import Extraction
from services.router.grounding.files.sealed_file import SealedFile
from services.router.grounding.files.turns import Turns
from services.router.grounding.files.upload_limits import UploadLimits
from services.router.grounding.records import Attachment

# A document arrives at least this fast, beyond the time that any may take.
LEAST_BYTES_PER_S: Final = 8 * 1024
GRACE_S: Final = 20.0

Requests = AsyncIterator[pb.AddAttachmentRequest]


class IntakeProgress(Protocol):
    """Receives how far a document is, for its sender."""

    def tell(self, stage: "pb.AttachmentStage.ValueType", done: int, total: int) -> None: ...

    def delivered(self) -> Awaitable[None]:
        """Waits until all that was told was sent, so that no more is told than is read."""
        ...


class Intake:
    def __init__(
        self,
        attachments: Attachments,
        extraction: Extraction,
        turns: Turns,
        limits: UploadLimits,
        folder: Path,
        bytes_most: int,
        log: Log,
        grace_s: float = GRACE_S,
    ) -> None:
        """Documents have up to `bytes_most`; until they are read, they are in `folder`, encrypted."""
        self._attachments = attachments
        self._extraction = extraction
        self._turns = turns
        self._limits = limits
        self._folder = folder
        self._bytes_most = bytes_most
        self._log = log
        self._grace_s = grace_s

    async def add(self, requests: Requests, progress: IntakeProgress) -> Attachment:
        first = await self._receive_first(requests)
        with self._limits.admit(first.account_id, first.size_bytes) as space:
            try:
                with SealedFile(self._folder) as received:
                    await self._receive(first, requests, received, space, progress)
                    async with self._turns.turn(first.account_id):
                        return await self._index(first, received, progress)
            except OSError as error:
                # No space, or no folder to write in.
                self._log.failure("document.not_received", error)
                raise unavailable("The space for new documents") from None

    async def _receive_first(self, requests: Requests) -> pb.AddAttachmentRequest:
        async with _deadline(self._grace_s):
            first = await anext(requests, None)
        if first is None:
            raise LegatoError(Reason.REQUEST_INVALID, "The document is missing.", param="document")
        if not first.account_id:
            raise LegatoError(Reason.REQUEST_INVALID, "account_id is missing.", param="account_id")
        self._check_size(first.size_bytes)
        return first

    async def _receive(
        self,
        first: pb.AddAttachmentRequest,
        requests: Requests,
        received: SealedFile,
        space: BudgetShare,
        progress: IntakeProgress,
    ) -> None:
        async with _deadline(self._grace_s) as deadline:
            began_s = deadline.when() or 0.0
            request: pb.AddAttachmentRequest | None = first
            while request is not None:
                total_bytes = received.size_bytes + len(request.piece)
                self._check_size(total_bytes)
                space.grow_to(total_bytes)
                await received.append(request.piece)
                progress.tell(pb.ATTACHMENT_STAGE_RECEIVING, total_bytes, first.size_bytes)
                await progress.delivered()
                deadline.reschedule(began_s + total_bytes / LEAST_BYTES_PER_S)
                request = await anext(requests, None)
        # A sender that leaves ends its requests, too.
        if received.size_bytes < first.size_bytes:
            raise LegatoError(Reason.REQUEST_INVALID, "The document was not sent completely.", param="document")

    async def _index(
        self, first: pb.AddAttachmentRequest, received: SealedFile, progress: IntakeProgress
    ) -> Attachment:
        document = await self._extraction.read(
            received, lambda done, total: progress.tell(pb.ATTACHMENT_STAGE_READING, done, total)
        )
        received.close()
        return await self._attachments.add(
            first.account_id,
            first.name,
            document,
            lambda done, total: progress.tell(pb.ATTACHMENT_STAGE_INDEXING, done, total),
        )

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._bytes_most:
            megabytes = self._bytes_most / 1024**2
            raise LegatoError(Reason.BODY_TOO_LARGE, f"A document may have at most {megabytes:g} MB.", param="document")


@asynccontextmanager
async def _deadline(within_s: float) -> AsyncIterator[asyncio.Timeout]:
    try:
        async with asyncio.timeout(within_s) as deadline:
            yield deadline
    except TimeoutError:
        raise LegatoError(
            Reason.BODY_TIMEOUT,
            f"The document arrives too slowly: at least {LEAST_BYTES_PER_S // 1024} KB a second are needed.",
            param="document",
        ) from None

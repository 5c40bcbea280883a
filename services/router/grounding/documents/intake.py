"""Takes in a document: receives it on the disk, waits for the account's turn, reads and indexes it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.load.fair_budget import BudgetShare, FairBudget
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.chassis.telemetry.full_disks import is_of_full_disk
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.files.extraction import Extraction
from services.router.grounding.files.sealed_file import SealedFile
from services.router.grounding.files.turns import Turns
from services.router.grounding.records import Attachment
from services.router.grounding.settings import GroundingSettings

# A document arrives at least this fast, beyond the time that any may take.
LEAST_BYTES_PER_S: Final = 8 * 1024
GRACE_S: Final = 20.0
# From the first byte of a document until it can be searched: those that are received, wait, are read or indexed.
BY_ACCOUNT_MOST: Final = 4
IN_ALL_MOST: Final = 64
RETRY_AFTER_S: Final = 10.0

Requests = AsyncIterator[pb.AddAttachmentRequest]


class Progress:
    """Collects the answers to a sender about its document, in their order."""

    def __init__(self) -> None:
        self._responses: asyncio.Queue[pb.AddAttachmentResponse | None] = asyncio.Queue()
        # Waits until every report was sent, so that no more are made than are read.
        self.delivered = self._responses.join

    def report(self, stage: "pb.AttachmentStage.ValueType", done: int, total: int) -> None:
        progress = pb.AttachmentProgress(stage=stage, done=done, total=total)
        self._responses.put_nowait(pb.AddAttachmentResponse(progress=progress))

    def end(self, _: object) -> None:
        self._responses.put_nowait(None)

    async def responses(self) -> AsyncIterator[pb.AddAttachmentResponse]:
        while (response := await self._responses.get()) is not None:
            yield response
            self._responses.task_done()


class UploadLimits:
    """Limits the documents that are being added at once: by account, in all, and by the space they take."""

    def __init__(self, bytes_most: int) -> None:
        self._places = FairBudget("A place for another document", IN_ALL_MOST)
        self._space = FairBudget("Space for another document", bytes_most)
        self._running: Counter[str] = Counter()

    @contextmanager
    def admit(self, account_id: str, announced_bytes: int) -> Iterator[BudgetShare]:
        """Takes a place and space for a document, both given back at the end of the context. The space grows with what
        is received beyond what was announced."""
        running = self._running[account_id]
        if running >= BY_ACCOUNT_MOST:
            raise LegatoError(
                Reason.TOO_MANY_AT_ONCE,
                Sentence("documents_running", running=running),
                param="document",
                retry_after_s=RETRY_AFTER_S,
            )
        with self._places.hold(account_id, 1), self._space.hold(account_id, announced_bytes) as space:
            self._running[account_id] += 1
            try:
                yield space
            finally:
                self._running[account_id] -= 1
                if not self._running[account_id]:
                    del self._running[account_id]


class Intake:
    def __init__(
        self,
        attachments: Attachments,
        settings: GroundingSettings,
        clock: Clock,
        log: Log,
        grace_s: float = GRACE_S,
        on_full: Callable[[bool], None] = lambda is_full: None,
    ) -> None:
        """Until documents are read, they are in the data folder, encrypted. `on_full` is told whether its disk is
        full."""
        self._attachments = attachments
        self._extraction = Extraction(settings.attachment_pages, log)
        self._turns = Turns(clock)
        self._limits = UploadLimits(settings.upload_bytes)
        self._folder = settings.data
        self._bytes_most = settings.attachment_bytes
        self._log = log
        self._grace_s = grace_s
        self._on_full = on_full

    async def take(self, requests: Requests) -> AsyncGenerator[pb.AddAttachmentResponse, None]:
        """Adds a document, and yields how far it is, and at last the attachment."""
        progress = Progress()
        adding = asyncio.create_task(self.add(requests, progress))
        adding.add_done_callback(progress.end)
        try:
            async for response in progress.responses():
                yield response
            yield pb.AddAttachmentResponse(attachment=to_message(pb.Attachment, await adding))
        finally:
            adding.cancel()
            with suppress(asyncio.CancelledError, LegatoError):
                await adding

    async def add(self, requests: Requests, progress: Progress) -> Attachment:
        first = await self._receive_first(requests)
        with self._limits.admit(first.account_id, first.size_bytes) as space:
            try:
                with SealedFile(self._folder) as received:
                    await self._receive(first, requests, received, space, progress)
                    self._on_full(False)
                    async with self._turns.turn(first.account_id):
                        return await self._index(first, received, progress)
            except OSError as error:
                # No space, or no folder to write in.
                self._on_full(is_of_full_disk(error))
                self._log.failure("document.not_received", error)
                raise unavailable("The space for new documents") from None

    async def _receive_first(self, requests: Requests) -> pb.AddAttachmentRequest:
        async with _deadline(self._grace_s):
            first = await anext(requests, None)
        if first is None:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("document_missing"), param="document")
        if not first.account_id:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_id_missing"), param="account_id")
        self._check_size(first.size_bytes)
        return first

    async def _receive(
        self,
        first: pb.AddAttachmentRequest,
        requests: Requests,
        received: SealedFile,
        space: BudgetShare,
        progress: Progress,
    ) -> None:
        async with _deadline(self._grace_s) as deadline:
            began_s = deadline.when() or 0.0
            request: pb.AddAttachmentRequest | None = first
            while request is not None:
                total_bytes = received.size_bytes + len(request.piece)
                self._check_size(total_bytes)
                space.grow_to(total_bytes)
                await received.append(request.piece)
                progress.report(pb.ATTACHMENT_STAGE_RECEIVING, total_bytes, first.size_bytes)
                await progress.delivered()
                deadline.reschedule(began_s + total_bytes / LEAST_BYTES_PER_S)
                request = await anext(requests, None)
        # A sender that leaves ends its requests, too.
        if received.size_bytes < first.size_bytes:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("document_cut"), param="document")

    async def _index(self, first: pb.AddAttachmentRequest, received: SealedFile, progress: Progress) -> Attachment:
        document = await self._extraction.read(received, partial(progress.report, pb.ATTACHMENT_STAGE_READING))
        received.close()
        on_indexed = partial(progress.report, pb.ATTACHMENT_STAGE_INDEXING)
        return await self._attachments.add(first.account_id, first.name, document, on_indexed)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._bytes_most:
            megabytes = self._bytes_most / 1024**2
            raise LegatoError(
                Reason.BODY_TOO_LARGE, Sentence("document_size_most", most_mb=f"{megabytes:g}"), param="document"
            )


@asynccontextmanager
async def _deadline(within_s: float) -> AsyncIterator[asyncio.Timeout]:
    try:
        async with asyncio.timeout(within_s) as deadline:
            yield deadline
    except TimeoutError:
        raise LegatoError(
            Reason.BODY_TIMEOUT,
            Sentence("document_too_slow", least_kb=LEAST_BYTES_PER_S // 1024),
            param="document",
        ) from None

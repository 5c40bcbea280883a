"""The RPCs of content.proto: the texts of an account's documents, for its export, and the erasure of all it keeps."""

from typing import Final

from legato_protos.router.v1 import content_pb2 as pb
from legato_protos.router.v1 import content_pb2_grpc as pb_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.router.grounding.assembly import Opened

# A message of some 250 KB at most.
PASSAGES_AT_ONCE: Final = 100


class ContentServicer(pb_grpc.ContentServiceServicer):
    def __init__(self, opened: Opened, log: Log) -> None:
        self._library = opened.library
        self._log = log

    async def ListPassages(self, request: pb.ListPassagesRequest, context: Context) -> pb.ListPassagesResponse:
        attachments = None if self._library is None else self._library.attachments
        if attachments is None or request.skip < 0:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("passages_missing"))
        found = await attachments.read_passages(
            request.account_id, request.attachment_id, request.skip, PASSAGES_AT_ONCE + 1
        )
        passages = [pb.Passage(page=page, text=text) for page, text in found[:PASSAGES_AT_ONCE]]
        return pb.ListPassagesResponse(passages=passages, has_more=len(found) > PASSAGES_AT_ONCE)

    async def EraseAccount(self, request: pb.EraseAccountRequest, context: Context) -> pb.EraseAccountResponse:
        if not request.account_id:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_id_missing"), param="account_id")
        if self._library is None:
            return pb.EraseAccountResponse()
        notes, attachments = await self._library.erase_account(request.account_id)
        self._log.info("account.erased", account_id=request.account_id)
        return pb.EraseAccountResponse(notes=notes, attachments=attachments)

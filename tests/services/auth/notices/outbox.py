"""Metering's outbox, which loses acknowledgements when it is told to."""

from collections.abc import Sequence

from legato_protos.metering.v1 import outbox_pb2 as pb


class Outbox:
    def __init__(self, notices: Sequence[pb.PendingNotice] = (), changes: Sequence[pb.PendingChange] = ()) -> None:
        self.pending = pb.ListPendingResponse(notices=notices, changes=changes)
        self.loses_acknowledgements = False

    async def ListPending(self, request: pb.ListPendingRequest, timeout: float) -> pb.ListPendingResponse:
        return self.pending

    async def Acknowledge(self, request: pb.AcknowledgeRequest, timeout: float) -> None:
        if self.loses_acknowledgements:
            raise ConnectionError
        assert request.notice_ids == [notice.notice_id for notice in self.pending.notices]
        assert request.change_ids == [change.change_id for change in self.pending.changes]
        self.pending = pb.ListPendingResponse()

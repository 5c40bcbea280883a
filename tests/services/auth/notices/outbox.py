"""Metering's outbox, which loses acknowledgements when it is told to."""

from collections.abc import Sequence

from protos.metering.v1 import outbox_pb2 as pb


class Outbox:
    def __init__(self, notices: Sequence[pb.PendingNotice] = (), changes: Sequence[pb.PendingChange] = ()) -> None:
        self.pending = pb.ListPendingResponse(notices=notices, changes=changes)
        self.loses_acknowledgements = False

    async def list_pending(self) -> pb.ListPendingResponse:
        return self.pending

    async def acknowledge(self, pending: pb.ListPendingResponse) -> None:
        if self.loses_acknowledgements:
            raise ConnectionError
        assert pending == self.pending
        self.pending = pb.ListPendingResponse()

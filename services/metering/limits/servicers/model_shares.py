"""Implements the RPC by which routers renew their shares of models' limits."""

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1 import model_shares_pb2_grpc
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.metering.limits.model_shares import ModelShareStore, ShareClaim
from services.metering.messages import invalid


class ModelShareServicer(model_shares_pb2_grpc.ModelShareServiceServicer):
    def __init__(self, store: ModelShareStore) -> None:
        self._store = store

    async def RenewShares(self, request: pb.RenewSharesRequest, context: Context) -> pb.RenewSharesResponse:
        if not request.router_id:
            raise invalid(Sentence("router_unnamed"), "router_id")
        claims = [ShareClaim(each.limit_name, each.limit, each.held, each.wanted) for each in request.claims]
        if len({claim.limit_name for claim in claims}) < len(claims):
            raise invalid(Sentence("limit_named_twice"), "claims")
        if any(not claim.limit_name or claim.limit < 1 or min(claim.held, claim.wanted) < 0 for claim in claims):
            raise invalid(Sentence("share_claim_invalid"), "claims")
        renewed = await self._store.renew(request.router_id, request.sequence, claims)
        return pb.RenewSharesResponse(shares=[to_message(pb.ModelShare, share) for share in renewed])

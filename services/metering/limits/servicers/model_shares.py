"""Implements the RPC by which routers lease their shares of models' limits."""

import asyncio
from typing import Final

from google.protobuf.duration_pb2 import Duration

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1 import model_shares_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.database.outages import LockTimeout
from services.chassis.rpc.messages import to_message
from services.chassis.rpc.server import Context
from services.metering.limits.model_shares import LEASE_US, ShareClaim, ShareHolder
from services.metering.limits.store import RenewedShare, renew_shares
from services.metering.messages import invalid

CLAIMS_MOST: Final = 1_000
NAME_CHARACTERS: Final = 512
LARGEST_LIMIT: Final = 1_000_000
CALLS_EVERY_S: Final = 1.0
# If routers want more than there is; many of them call less often.
CONTENDED_EVERY_S: Final = 0.25
CONTENDED_CALLS_PER_S: Final = 40
# While another replica renews.
ATTEMPTS: Final = 10
ATTEMPT_EVERY_S: Final = 0.02


class ModelShareServicer(model_shares_pb2_grpc.ModelShareServiceServicer):
    def __init__(self, database: Database, lost_router_s: float) -> None:
        """`lost_router_s` is how long the places of a router that does not call are kept."""
        self._database = database
        self._kept_us = round(lost_router_s * 1e6)

    async def RenewShares(self, request: pb.RenewSharesRequest, context: Context) -> pb.RenewSharesResponse:
        holder, claims = _read(request)
        for _ in range(ATTEMPTS):
            shares = await self._database.write(renew_shares, holder, claims, self._kept_us)
            if shares is not None:
                return _to_response(shares)
            await asyncio.sleep(ATTEMPT_EVERY_S)
        raise LockTimeout


def _read(request: pb.RenewSharesRequest) -> tuple[ShareHolder, list[ShareClaim]]:
    if not 0 < len(request.holder_id) <= NAME_CHARACTERS or len(request.instance) > NAME_CHARACTERS:
        raise invalid(f"A router is named by up to {NAME_CHARACTERS} characters.", "holder_id")
    if request.sequence < 1:
        raise invalid("Calls are numbered from 1.", "sequence")
    if len(request.claims) > CLAIMS_MOST:
        raise invalid(f"A call has at most {CLAIMS_MOST} claims.", "claims")
    claims = [ShareClaim(each.limit_name, each.limit, each.held, each.wanted) for each in request.claims]
    if len({claim.limit_name for claim in claims}) < len(claims):
        raise invalid("A limit is named twice.", "claims")
    for claim in claims:
        if not 0 < len(claim.limit_name) <= NAME_CHARACTERS:
            raise invalid(f"A limit is named by up to {NAME_CHARACTERS} characters.", "claims")
        if not 0 < claim.limit <= LARGEST_LIMIT or min(claim.held, claim.wanted) < 0:
            raise invalid(f"A limit is at most {LARGEST_LIMIT}, and counts are not negative.", "claims")
    began_at_us = request.start_time.ToMicroseconds()
    return ShareHolder(request.holder_id, request.instance, began_at_us, request.sequence), claims


def _to_response(shares: list[RenewedShare]) -> pb.RenewSharesResponse:
    contending = max((share.callers for share in shares if share.is_contended), default=0)
    again_after_s = max(CONTENDED_EVERY_S, contending / CONTENDED_CALLS_PER_S) if contending else CALLS_EVERY_S
    response = pb.RenewSharesResponse(
        shares=[to_message(pb.ModelShare, share, places=share.ceiling) for share in shares], lease=Duration()
    )
    response.lease.FromMicroseconds(LEASE_US)
    response.call_again_after.FromMilliseconds(round(again_after_s * 1000))
    return response

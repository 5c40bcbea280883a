"""Implements the RPCs of AuthService for edges: converts messages to calls of the domain, and back."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1 import auth_pb2_grpc as pb_grpc
from services.auth.core.messages import from_allowance
from services.auth.core.parts import Parts
from services.auth.keys.rules.callers import Callers
from services.auth.keys.rules.verifier import Verified, Verifier
from services.auth.keys.rules.watch import Heartbeat, Ping, Watches
from services.auth.keys.servicers.maintenance import MaintenanceMethods, to_maintenance
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message, to_timestamp


class AuthServicer(MaintenanceMethods, pb_grpc.AuthServiceServicer):
    def __init__(self, parts: Parts, verifier: Verifier, callers: Callers, watches: Watches) -> None:
        super().__init__(parts)
        self._verifier = verifier
        self._callers = callers
        self._watches = watches

    async def Verify(self, request: pb.VerifyRequest, context: Context) -> pb.VerifyResponse:
        verified = await self._verifier.verify(request.api_key, accepts_tokens=request.accepts_playground_tokens)
        return pb.VerifyResponse(**_to_answer(verified))

    async def VerifyCaller(self, request: pb.VerifyCallerRequest, context: Context) -> pb.VerifyCallerResponse:
        verified = await self._verifier.verify_caller(request.caller, request.account_id)
        return pb.VerifyCallerResponse(**_to_answer(verified))

    async def ListCallerKeys(self, request: pb.ListCallerKeysRequest, context: Context) -> pb.ListCallerKeysResponse:
        keys = await self._callers.list_keys(request.account_id)
        return pb.ListCallerKeysResponse(keys=[pb.CallerKey(key_id=key.key_id, caller=key.name) for key in keys])

    async def FindRefusedKeys(self, request: pb.FindRefusedKeysRequest, context: Context) -> pb.FindRefusedKeysResponse:
        return pb.FindRefusedKeysResponse(key_ids=await self._verifier.find_refused(request.key_ids))

    async def Watch(
        self, request_iterator: AsyncIterator[pb.WatchRequest], context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._watches.serve(_to_pings(request_iterator))) as heartbeats:
            async for heartbeat in heartbeats:
                yield _to_watch_response(heartbeat)


def _to_answer(verified: Verified) -> dict[str, Any]:
    return {
        "principal": _to_principal(verified),
        "epoch": verified.epoch,
        "once_only": not verified.may_be_remembered,
        "maintenance": to_maintenance(verified.holder.maintenance),
    }


def _to_principal(verified: Verified) -> pb.Principal:
    holder = verified.holder
    # The holder's own come first: they are what the key and its account allow together.
    parts = holder, holder.key, holder.limits, holder.grounding, verified
    allowed = from_allowance(holder.allowed_classes)
    others = {"credential_id": holder.token_id, "caller": holder.key.caller_name}
    return to_message(pb.Principal, *parts, **others, allowed_classes=allowed)


async def _to_pings(requests: AsyncIterator[pb.WatchRequest]) -> AsyncIterator[Ping]:
    # Not a generator expression: that would start receiving at once, and gRPC fails if nothing continues it.
    async for request in requests:
        networks = [(used.key_id, used.network) for used in request.used_networks]
        yield Ping(request.ping_no, request.epoch, request.used_key_ids, networks)


def _to_watch_response(heartbeat: Heartbeat) -> pb.WatchResponse:
    return pb.WatchResponse(
        epoch=heartbeat.changes.epoch,
        echoed_ping_no=heartbeat.echoed_ping_no,
        changed_key_ids=heartbeat.changes.key_ids,
        forget_all=heartbeat.changes.has_gap,
        refused_key_ids=heartbeat.changes.refused_key_ids,
        read_time=to_timestamp(heartbeat.read_at_us),
        maintenance=to_maintenance(heartbeat.changes.maintenance),
    )

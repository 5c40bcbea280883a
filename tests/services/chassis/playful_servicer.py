"""A service that behaves as its caller asks it to, well or badly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from legato_protos.auth.v1 import auth_pb2, auth_pb2_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from services.chassis.sentence import Sentence

CANARY = "what-was-said"


class Servicer(auth_pb2_grpc.AuthServiceServicer):
    """Does with a call what its key or its ping number asks for."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.retry_after_s: float | None = 3

    async def Verify(self, request: auth_pb2.VerifyRequest, context: Any) -> auth_pb2.VerifyResponse:
        match request.api_key:
            case "refused":
                raise LegatoError(
                    Reason.KEY_INVALID, Sentence.verbatim("The key is not valid."), retry_after_s=self.retry_after_s
                )
            case "broken":
                raise RuntimeError(CANARY)
            case "cancelled":
                raise asyncio.CancelledError
            case "endless":
                await self._wait_for_ever()
        return auth_pb2.VerifyResponse(epoch=7)

    async def Watch(self, requests: Any, context: Any) -> AsyncIterator[auth_pb2.WatchResponse]:
        async for request in requests:
            match request.ping_no:
                case 1:
                    yield auth_pb2.WatchResponse(echoed_ping_no=1)
                case 2:
                    raise LegatoError(Reason.SATURATED, Sentence.verbatim("Later, please."))
                case 3:
                    raise RuntimeError(CANARY)
                case 4:
                    await self._wait_for_ever()
                case 5:
                    raise asyncio.CancelledError

    async def FindRefusedKeys(self, request: Any, context: Any) -> auth_pb2.FindRefusedKeysResponse:
        return auth_pb2.FindRefusedKeysResponse()

    async def VerifyCaller(self, request: Any, context: Any) -> auth_pb2.VerifyCallerResponse:
        return auth_pb2.VerifyCallerResponse()

    async def ListCallerKeys(self, request: Any, context: Any) -> auth_pb2.ListCallerKeysResponse:
        return auth_pb2.ListCallerKeysResponse()

    async def StartMaintenance(self, request: Any, context: Any) -> auth_pb2.StartMaintenanceResponse:
        return auth_pb2.StartMaintenanceResponse()

    async def EndMaintenance(self, request: Any, context: Any) -> auth_pb2.EndMaintenanceResponse:
        return auth_pb2.EndMaintenanceResponse()

    async def GetMaintenance(self, request: Any, context: Any) -> auth_pb2.GetMaintenanceResponse:
        return auth_pb2.GetMaintenanceResponse()

    async def _wait_for_ever(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


async def verify(channel: grpc.aio.Channel, api_key: str) -> auth_pb2.VerifyResponse:
    with errors_of("Auth"):
        return await auth_pb2_grpc.AuthServiceStub(channel).Verify(auth_pb2.VerifyRequest(api_key=api_key))

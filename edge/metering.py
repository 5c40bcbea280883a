"""The edge's dealings with metering: rates, holds, settlements and usage."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from edge.principals import Principal
from edge.services import MeteringReplica
from protos.metering.v1 import metering_pb2 as pb
from services.chassis.channel import errors_of
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log
from services.chassis.replicas import Replicas

ResponseT = TypeVar("ResponseT", bound=Message)

# A metering that is being restarted is waited for this long before anybody is refused.
PATIENCE_S = 2.0
ASK_TIMEOUT_S = 10.0
ASK_AGAIN_AFTER_S = 0.05
SETTLE_AGAIN_AFTER_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Metering:
    def __init__(self, replicas: Replicas[MeteringReplica], clock: Clock, log: Log) -> None:
        self._replicas = replicas
        self._clock = clock
        self._log = log
        self._settlements: set[asyncio.Task[None]] = set()

    async def admit(self, principal: Principal) -> pb.AdmitResponse:
        """Takes one request from the key's rate; raises RATE_LIMITED."""
        request = pb.AdmitRequest(
            key_id=principal.key_id,
            account_id=principal.account_id,
            requests_per_minute=principal.requests_per_minute,
        )
        return await self._ask("Admit", request, pb.AdmitResponse, principal.account_id)

    async def reserve(self, request: pb.ReserveRequest, on_repeat: Callable[[], None]) -> pb.ReserveResponse:
        """`on_repeat` is called when an answer was lost and the question is asked again."""
        return await self._ask("Reserve", request, pb.ReserveResponse, request.account_id, on_repeat)

    async def extend(self, request: pb.ExtendRequest) -> pb.ExtendResponse:
        return await self._ask("Extend", request, pb.ExtendResponse, request.account_id)

    def settle(self, request: pb.SettleRequest) -> None:
        """In the background, for as long as it takes: it belongs to the process, not to a client who may have left."""
        self._resolve("Settle", request, pb.SettleResponse)

    def void(self, request: pb.VoidRequest) -> None:
        self._resolve("Void", request, pb.VoidResponse)

    async def settled(self) -> None:
        """Wait for every settlement that is under way."""
        while self._settlements:
            await asyncio.wait(self._settlements)

    async def usage(self, request: pb.ListUsageRequest) -> pb.ListUsageResponse:
        with errors_of("Metering"):
            stub = self._replicas.for_account(request.account_id).stub
            return await stub.ListUsage(request, timeout=ASK_TIMEOUT_S)

    async def balance_nanos(self, account_id: str) -> int:
        with errors_of("Metering"):
            stub = self._replicas.for_account(account_id).stub
            response = await stub.GetBalance(pb.GetBalanceRequest(account_id=account_id), timeout=ASK_TIMEOUT_S)
        return response.balance.balance_nanos

    async def _ask(
        self,
        method: str,
        request: Message,
        response_type: type[ResponseT],
        account_id: str,
        on_repeat: Callable[[], None] = lambda: None,
    ) -> ResponseT:
        """Repeated while metering is away, for a short while. Every call here may be repeated without harm."""
        give_up_at_s = self._clock.elapsed_s() + PATIENCE_S
        while True:
            try:
                replica = self._replicas.for_account(account_id)
                answer: ResponseT = await replica.ask(method, request, response_type, ASK_TIMEOUT_S)
                return answer
            except LegatoError as error:
                if error.reason is not Reason.UNAVAILABLE or self._clock.elapsed_s() >= give_up_at_s:
                    raise
            on_repeat()
            await asyncio.sleep(ASK_AGAIN_AFTER_S)

    def _resolve(self, method: str, request: pb.SettleRequest | pb.VoidRequest, response_type: type[Message]) -> None:
        task = asyncio.create_task(self._resolve_for_ever(method, request, response_type))
        self._settlements.add(task)
        task.add_done_callback(self._settlements.discard)

    async def _resolve_for_ever(
        self, method: str, request: pb.SettleRequest | pb.VoidRequest, response_type: type[Message]
    ) -> None:
        failures = 0
        while True:
            with contextlib.suppress(LegatoError):
                replica = self._replicas.for_account(request.account_id)
                await replica.ask(method, request, response_type, ASK_TIMEOUT_S)
                return
            failures += 1
            if failures % 20 == 1:
                self._log.warning("settlement.waits", request_id=request.request_id, attempt=failures)
            await asyncio.sleep(SETTLE_AGAIN_AFTER_S[min(failures, len(SETTLE_AGAIN_AFTER_S)) - 1])

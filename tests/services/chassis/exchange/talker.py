"""A router at the other end of an exchange, which says what the test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.methods import CallStream, StreamMethod, UnaryMethod
from services.chassis.exchange.rpc import serve_stream
from services.chassis.exchange.server import ExchangeServer
from services.chassis.rpc.server import RpcServer
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.support.tracing import RecordedSpan, recording_tracer
from tests.support.waiting import WAIT_TIMEOUT_S

Chat = CallStream[router.ChatRequest, router.ChatResponse]


class Talker(router_pb2_grpc.RouterServiceServicer):
    """A router that says what the test wants, and remembers who left."""

    def __init__(self, log: Log, spans: list[RecordedSpan]) -> None:
        """`spans` is given those of the calls that are traced."""
        self.is_mute = False
        self.balances_told = 0
        self.sent = 0
        self.left = asyncio.Event()
        self.grants: list[int] = []
        self.granted = asyncio.Event()
        self.release = asyncio.Event()
        self.chat = StreamMethod(router.ChatRequest, self.converse)
        self.exchange = ExchangeServer(
            "legato.router.v1.RouterService",
            {"Chat": self.chat, "GetBalance": UnaryMethod(metering.GetBalanceRequest, self.get_balance)},
            router.ExchangeResponse,
            log,
            recording_tracer(SystemClock(), spans),
        )

    async def get_balance(self, request: metering.GetBalanceRequest) -> metering.GetBalanceResponse:
        if request.account_id == "poor":
            raise LegatoError(
                Reason.CREDITS_EXHAUSTED, Sentence.verbatim("Nothing left."), param="account", retry_after_s=1.5
            )
        if request.account_id == "bug":
            raise RuntimeError("said in confidence")
        if request.account_id == "slow":
            await self.release.wait()
        self.balances_told += 1
        return metering.GetBalanceResponse(balance=metering.Balance(account_id=request.account_id))

    async def converse(self, chat: Chat) -> None:
        opened = (await chat.receive()).open
        try:
            if opened.model == "grants":
                while (grant := (await chat.receive()).grant).output_tokens:
                    self.grants.append(grant.output_tokens)
                    await chat.send(router.ChatResponse(output_tokens=grant.output_tokens))
                self.granted.set()
                return
            if opened.model == "wait":
                await self.release.wait()
            if opened.model == "fail":
                await chat.send(router.ChatResponse(contents=["first"]))
                raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("It broke."))
            for number in range(opened.max_tokens):
                await chat.send(router.ChatResponse(contents=["x" * int(opened.request_id or 1)], output_tokens=number))
                self.sent = number + 1
        except asyncio.CancelledError:
            self.left.set()
            raise

    async def Chat(self, request_iterator: Any, context: Any) -> AsyncIterator[router.ChatResponse]:
        async for response in serve_stream(self.chat, context):
            yield response

    async def Exchange(self, request_iterator: Any, context: Any) -> AsyncIterator[router.ExchangeResponse]:
        if self.is_mute:
            await self.release.wait()
        async for response in self.exchange.serve(request_iterator):
            yield response

    async def ListModels(self, request: Any, context: Any) -> router.ListModelsResponse:
        return router.ListModelsResponse()

    async def CountTokens(self, request: Any, context: Any) -> router.CountTokensResponse:
        return router.CountTokensResponse()


def opening(model: str = "", pieces: int = 0, piece_bytes: int = 1) -> router.ChatRequest:
    return router.ChatRequest(
        open=router.ChatOpen(model=model, max_tokens=pieces, request_id=str(piece_bytes), messages_json=b"[]")
    )


class Serve:
    def __init__(self, listen: str, talker: Talker, log: Log) -> None:
        self._make: Callable[[], RpcServer] = lambda: RpcServer(listen, [talker], log)
        self._server: RpcServer | None = None

    async def start(self) -> None:
        self._server = self._make()
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


async def ask(client: ExchangeClient, account_id: str, timeout_s: float = WAIT_TIMEOUT_S) -> str:
    request = metering.GetBalanceRequest(account_id=account_id)
    answer = await client.call("GetBalance", request, metering.GetBalanceResponse, timeout_s)
    return answer.balance.account_id

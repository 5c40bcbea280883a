"""The course of one chat: reserve, route, relay, settle."""

import asyncio
from dataclasses import dataclass
from typing import cast

from edge.access.entrance import AdmittedRequest
from edge.access.saturation import EdgeSaturation
from edge.backends.exchanges import ChatCall, RouterReplica
from edge.billing.hold import ChatHold
from edge.billing.journal import Journal
from edge.billing.metering import Metering
from edge.billing.prompt_estimate import guess_prompt_tokens
from edge.chat.delivery import Delivery
from edge.chat.hold_growth import HoldGrowth
from edge.chat.keepalive import Keepalive
from edge.chat.replies import Reply
from edge.chat.router_request import chat_opening
from edge.metrics import OPERATION, OUTCOMES, ChatMetrics
from edge.wire.asgi import WhenGone
from edge.wire.body_reader import ClientGone
from edge.wire.chat_request import ChatBody
from protos.metering.v1 import metering_pb2 as metering_pb
from protos.router.v1 import router_pb2 as router
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error, unavailable
from services.chassis.exchange import ExchangeBroken
from services.chassis.process import failpoints
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.clock import Clock


@dataclass(frozen=True, slots=True)
class ChatDependencies:
    """The dependencies that all chats of an edge share."""

    metering: Metering
    journal: Journal
    routers: Replicas[RouterReplica]
    saturation: EdgeSaturation
    # Time limit of an answer: metering releases its hold a little later.
    life_s: float
    # Longest silence of a stream before its first token, and between keepalive comments.
    keepalive_s: float
    clock: Clock
    log: Log
    metrics: ChatMetrics
    # None disables tracing.
    tracer: Tracer | None = None


class Chat:
    def __init__(
        self,
        dependencies: ChatDependencies,
        admitted: AdmittedRequest,
        body: ChatBody,
        class_id: str,
        request_id: str,
        reply: Reply,
        claim: metering_pb.IdempotencyClaim | None = None,
    ) -> None:
        self._dependencies = dependencies
        self._admitted = admitted
        self._body = body
        self._claim = claim
        self._class_id = class_id
        self._request_id = request_id
        self._hold = ChatHold(dependencies.metering, dependencies.journal, admitted.principal, request_id, class_id)
        self._delivery = Delivery(self._hold, reply)
        self._hold_growth = HoldGrowth(self._hold, self._delivery)
        self._keepalive = Keepalive(self._delivery.keep_alive, dependencies.keepalive_s)
        self._call: ChatCall | None = None
        self._began_at_s = admitted.step_timer.end_step(dependencies.metrics.body)
        self._first_piece_at_s: float | None = None
        self._client_gone = False
        self._over = False

    async def run_while_heard(self, when_gone: WhenGone) -> None:
        """Runs the chat, and cancels it as soon as its client disconnects."""
        task = cast(asyncio.Task[None], asyncio.current_task())

        def give_up() -> None:
            if not self._over:
                self._client_gone = True
                task.cancel()

        when_gone(give_up)
        try:
            await self.run()
        except asyncio.CancelledError:
            if not self._client_gone:
                raise
            task.uncancel()
            raise ClientGone from None

    async def run(self) -> None:
        end: metering_pb.End.ValueType = metering_pb.END_CLIENT_GONE
        try:
            end = await self._converse()
        except LegatoError as error:
            end = self._end_by_error()
            await self._break_off(error, end)
            forget_origin(error)
        except asyncio.CancelledError:
            if not self._client_gone:
                # The process shuts down and its drain time is over. The stream must still end with an error event.
                end = metering_pb.END_CRASHED
                await self._break_off(unavailable("The service"), end)
            raise
        except Exception as error:
            self._dependencies.log.failure("chat.failed", error, request_id=self._request_id)
            end = metering_pb.END_CRASHED
            await self._break_off(internal_error(), end)
            forget_origin(error)
        finally:
            self._over = True
            self._keepalive.stop()
            self._delivery.settle(end)
            counted = self._delivery.counted
            self._admitted.admission.use(counted.prompt_tokens + counted.completion_tokens)
            self._hold_growth.stop()
            if self._call is not None:
                self._call.cancel()
            self._record_end(end, counted)

    async def _converse(self) -> "metering_pb.End.ValueType":
        """Reserves, routes and relays. Returns how the chat ended, unless an error ended it."""
        grant = await self._reserve()
        if self._body.stream:
            self._keepalive.start()
        opening = chat_opening(self._body, self._admitted.principal, self._request_id, grant)
        opening.tells_acceptance = self._hold.tells_acceptance
        call, response = await self._route(opening)
        self._first_piece_at_s = self._admitted.step_timer.end_step(self._dependencies.metrics.first_piece)
        self._keepalive.stop()
        running_key, hold, hold_growth = self._admitted.running_key, self._hold, self._hold_growth
        life_s = self._dependencies.life_s
        while True:
            running_key.raise_if_refused()
            if self._age_s() >= life_s:
                return await self._end_early(_too_late())
            if not (hold.covers(response.prompt_tokens, response.output_tokens) or await hold_growth.covers(response)):
                return await self._end_early(hold.refusal(response.prompt_tokens, response.output_tokens))
            if response.contents or response.tool_calls:
                await self._delivery.add(response)
            if response.HasField("finished"):
                return await self._finish(response.finished)
            response = await self._next_response(call)

    async def _reserve(self) -> router.Grant:
        body = self._body
        prompt_tokens = guess_prompt_tokens(
            body.messages_json, body.tools_json, body.tool_choice_json, body.parameters_json
        )
        grant = await self._hold.reserve(prompt_tokens, self._body.max_tokens, self._claim, whole=not self._body.stream)
        held_at_s = self._admitted.step_timer.end_step(self._dependencies.metrics.reserve)
        self._dependencies.saturation.note_reserve(held_at_s - self._began_at_s)
        return grant

    async def _route(self, opening: router.ChatOpen) -> tuple[ChatCall, router.ChatResponse]:
        """Calls the least loaded router; retries once on another if that one is lost before its first response."""
        replica = self._dependencies.routers.least_loaded()
        try:
            self._call = call = replica.chat(opening)
            failpoints.hit("edge.routed")
            return call, await self._next_response(call)
        except ExchangeBroken:
            self._call = call = self._dependencies.routers.least_loaded(other_than=replica).chat(opening)
            return call, await self._next_response(call)

    async def _next_response(self, call: ChatCall) -> router.ChatResponse:
        """Returns the next response that has something for the client."""
        while (response := await call.receive()) is not None:
            if response.HasField("need"):
                self._hold_growth.answer(call, response.need)
            if response.accepted:
                self._delivery.accept(response.prompt_tokens)
            if response.HasField("started"):
                self._delivery.record_start(response.started)
            if response.contents or response.tool_calls or response.HasField("finished"):
                return response
        raise LegatoError(Reason.UPSTREAM_FAILED, "The model's answer was interrupted.")

    async def _end_early(self, refusal: LegatoError) -> "metering_pb.End.ValueType":
        """Ends the answer with `length` when its credit or its time limit is used up. Raises the refusal if there is no
        output yet."""
        counted = self._delivery.counted
        if not counted.completion_tokens:
            raise refusal
        end = metering_pb.END_CREDIT_SPENT if self._hold.spent else metering_pb.END_COMPLETE
        self._over = True
        await self._delivery.finish("length", counted, metering_pb.BASIS_COUNTED, end)
        return end

    async def _finish(self, finished: router.Finished) -> "metering_pb.End.ValueType":
        counted = finished.usage_source != router.USAGE_SOURCE_PROVIDER
        basis = metering_pb.BASIS_COUNTED if counted else metering_pb.BASIS_PROVIDER
        spent = self._hold.spent and counted and finished.finish_reason == "length"
        end = metering_pb.END_CREDIT_SPENT if spent else metering_pb.END_COMPLETE
        self._over = True
        if finished.citations:
            self._delivery.cite(finished.citations)
        await self._delivery.finish(finished.finish_reason, finished.usage, basis, end)
        return end

    def _end_by_error(self) -> "metering_pb.End.ValueType":
        if not self._delivery.has_begun:
            return metering_pb.END_REFUSED
        return metering_pb.END_KEY_REFUSED if self._admitted.running_key.is_refused else metering_pb.END_UPSTREAM_CUT

    async def _break_off(self, error: LegatoError, end: "metering_pb.End.ValueType") -> None:
        self._over = True
        self._keepalive.stop()
        self._delivery.settle(end)
        if self._delivery.is_open:
            self._dependencies.metrics.refused(error.reason)
            self._admitted.step_timer.refused(error)
            await self._delivery.fail(error)
            return
        if self._claim is not None:
            # A client that retries at once, at any edge, must find its idempotency key free.
            await self._dependencies.metering.acknowledged(self._request_id)
        raise error

    def _record_end(self, end: "metering_pb.End.ValueType", counted: Usage) -> None:
        """Records the end in the log, in Prometheus and, if it is traced, in the trace."""
        dependencies, step_timer, principal = self._dependencies, self._admitted.step_timer, self._admitted.principal
        if self._first_piece_at_s is None:
            first_piece_s, ended_at_s = None, dependencies.clock.elapsed_s()
        else:
            first_piece_s, ended_at_s = (
                self._first_piece_at_s - step_timer.began_s,
                step_timer.end_step(dependencies.metrics.relay),
            )
        took_s = ended_at_s - step_timer.began_s
        dependencies.metrics.ended(self._class_id, end, took_s, first_piece_s, self._hold.charged)
        dependencies.log.info(
            "chat.ended",
            request_id=self._request_id,
            account_id=principal.account_id,
            key_id=principal.key_id,
            class_id=self._class_id,
            stream=self._body.stream,
            tools=bool(self._body.tools_json),
            end=OUTCOMES[end],
            prompt_tokens=counted.prompt_tokens,
            completion_tokens=counted.completion_tokens,
            duration_ms=round(took_s * 1000, 1),
            **({} if step_timer.span is None else {"trace_id": step_timer.span.trace_id}),
        )
        if step_timer.span is not None:
            step_timer.span.name = f"{OPERATION} {self._class_id}"
            step_timer.span.attributes |= {
                "gen_ai.request.model": self._class_id,
                "gen_ai.usage.input_tokens": counted.prompt_tokens,
                "gen_ai.usage.output_tokens": counted.completion_tokens,
                "legato.stream": self._body.stream,
                "legato.end": OUTCOMES[end],
            }

    def _age_s(self) -> float:
        """Returns the time since before credit was held."""
        return self._dependencies.clock.elapsed_s() - self._began_at_s


def _too_late() -> LegatoError:
    return LegatoError(Reason.UPSTREAM_FAILED, "The model did not start to answer in time. Please retry.")

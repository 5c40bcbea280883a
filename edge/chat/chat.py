"""The course of one chat: reserve, route, deliver, settle."""

import asyncio
from enum import IntEnum, auto
from typing import Final

from msgspec import Struct

from edge.access.running_keys import RunningKey
from edge.backends.auth import Principal
from edge.backends.chat_opening import ChatOpening
from edge.backends.exchanges import ChatCall
from edge.backends.outage_wait import has_waited
from edge.billing.failures import CLIENT_GONE, CREDIT_SPENT
from edge.billing.hold import ChatHold
from edge.billing.prompt_estimate import guess_prompt_tokens
from edge.billing.rate_limits import Admission
from edge.billing.settlements import ChatDetails
from edge.chat.chat_metrics import OPERATION, OUTCOMES, StepTimer
from edge.chat.delivery import PieceDelivery
from edge.chat.edge_state import EdgeState
from edge.chat.reply import Reply
from edge.chat.router_affinity import affinity_of
from edge.chat.running_request import RunningRequest
from edge.wire.body_reader import ClientGone
from edge.wire.chat_request import ChatBody
from legato_protos.metering.v1 import metering_pb2 as metering_pb
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error, unavailable
from services.chassis.exchange.client import ExchangeBroken
from services.chassis.http.asgi import WhenGone
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.process import failpoints
from services.chassis.sentence import Sentence


class ChatStage(IntEnum):
    RESERVING = auto()
    ROUTING = auto()
    # The router has sent the first response that has something for the client.
    ANSWERING = auto()
    # The result is known. It is told in full, even if the client disconnects meanwhile.
    FINISHING = auto()
    FAILING = auto()
    # The client has disconnected, and the chat's task is cancelled.
    CLIENT_GONE = auto()
    ENDED = auto()


# The stages that may follow each stage.
STAGES_AFTER: Final = {
    ChatStage.RESERVING: {ChatStage.ROUTING, ChatStage.FAILING, ChatStage.CLIENT_GONE, ChatStage.ENDED},
    ChatStage.ROUTING: {ChatStage.ANSWERING, ChatStage.FAILING, ChatStage.CLIENT_GONE, ChatStage.ENDED},
    ChatStage.ANSWERING: {ChatStage.FINISHING, ChatStage.FAILING, ChatStage.CLIENT_GONE, ChatStage.ENDED},
    ChatStage.FINISHING: {ChatStage.FAILING, ChatStage.ENDED},
    ChatStage.FAILING: {ChatStage.ENDED},
    ChatStage.CLIENT_GONE: {ChatStage.ENDED},
    ChatStage.ENDED: set[ChatStage](),
}


# The ends of which clients are sent no error.
_FAILED_ENDS: Final = {metering_pb.END_CLIENT_GONE: CLIENT_GONE, metering_pb.END_CREDIT_SPENT: CREDIT_SPENT}


class AdmittedRequest(Struct):
    """An admitted chat, with what it was granted."""

    principal: Principal
    running_key: RunningKey
    admission: Admission
    step_timer: StepTimer
    # Released when the prompt is not needed any more.
    prompt_memory: BudgetShare
    # Empty until the request was read.
    class_id: str = ""


class Chat:
    def __init__(
        self,
        edge: EdgeState,
        admitted: AdmittedRequest,
        body: ChatBody,
        hold: ChatHold,
        reply: Reply,
        claim: metering_pb.IdempotencyClaim | None = None,
    ) -> None:
        self._edge = edge
        self._admitted = admitted
        self._body = body
        self._hold = hold
        self._reply = reply
        self._clock = edge.clock
        self._claim = claim
        self._call: ChatCall | None = None
        self._stage = ChatStage.RESERVING
        self._request = RunningRequest(admitted.principal.key_id, body.stream)
        self._began_at_s = admitted.step_timer.end_step(edge.metrics.body)
        self._over_at_s = self._began_at_s + edge.life_s
        self._delivery = PieceDelivery(hold, reply, admitted.running_key, edge.clock, self._over_at_s)

    async def run(self, when_gone: WhenGone | None = None) -> None:
        """Runs the chat. As soon as its client disconnects, cancels it and raises ClientGone."""
        task: asyncio.Task[object] = asyncio.current_task()  # type: ignore[assignment]
        if when_gone is not None:
            when_gone(lambda: self._leave(task))
        end: metering_pb.End.ValueType = metering_pb.END_CLIENT_GONE
        try:
            end = await self._converse()
        except (Exception, asyncio.CancelledError) as error:
            if self._stage is ChatStage.CLIENT_GONE:
                task.uncancel()
                raise ClientGone from None
            end = self._end_by_error(error)
            await self._break_off(self._public_error(error), end)
            if isinstance(error, asyncio.CancelledError):
                raise
            forget_origin(error)
        finally:
            self._enter(ChatStage.ENDED)
            self._reply.stop_keeping_alive()
            self._settle(end)
            self._admitted.admission.use(self._delivery.prompt_tokens + self._delivery.output_tokens)
            self._hold.stop_answering()
            if self._call is not None:
                self._call.cancel()
            self._record_end(end)

    def _leave(self, task: "asyncio.Task[object]") -> None:
        if ChatStage.CLIENT_GONE in STAGES_AFTER[self._stage]:
            self._enter(ChatStage.CLIENT_GONE)
            self._delivery.close()
            task.cancel()

    def _enter(self, stage: ChatStage) -> None:
        if stage not in STAGES_AFTER[self._stage]:
            raise RuntimeError(f"A chat that is {self._stage.name} cannot become {stage.name}.")
        self._stage = stage

    async def _converse(self) -> "metering_pb.End.ValueType":
        """Reserves, routes and delivers. Returns how the chat ended, unless an error ended it."""
        body, hold, step_timer = self._body, self._hold, self._admitted.step_timer
        prompt_tokens = guess_prompt_tokens(
            body.messages_json, body.tools_json, body.tool_choice_json, body.parameters_json
        )
        admission = self._admitted.admission
        grant = await hold.reserve(
            prompt_tokens, body.max_tokens, self._claim, whole=not body.stream, admission=admission
        )
        self._reply.put_headers(admission.headers)
        reserved_at_s = step_timer.end_step(self._edge.metrics.reserve)
        if not has_waited():
            # A failover is no queue.
            self._edge.saturation.record_reserve(reserved_at_s - self._began_at_s)
        self._request.arrived_at_s = step_timer.began_s
        self._enter(ChatStage.ROUTING)
        self._reply.keep_alive()
        affinity = affinity_of(self._admitted.principal.account_id, body.messages_json)
        call, response = await self._route(self._opening(grant), affinity)
        # The answer has begun, so no other router will be asked.
        self._admitted.prompt_memory.release()
        self._enter(ChatStage.ANSWERING)
        self._request.first_piece_at_s = step_timer.end_step(self._edge.metrics.first_piece)
        self._reply.stop_keeping_alive()
        self._delivery.open()
        # From here on this task sees only the responses that the delivery does not take where they arrive.
        while True:
            self._admitted.running_key.raise_if_refused()
            if self._clock.elapsed_s() >= self._over_at_s:
                return await self._end_early(LegatoError(Reason.UPSTREAM_FAILED, Sentence("answer_late")))
            if not await self._delivery.deliver(response):
                return await self._end_early(hold.refusal(response.prompt_tokens, response.output_tokens))
            if response.HasField("finished"):
                return await self._finish(response)
            response = await self._next_response(call)

    def _opening(self, grant: router.Grant) -> ChatOpening:
        """Returns the request for a router, which from here on has the only copy of the prompt."""
        body, principal = self._body, self._admitted.principal
        fields = router.ChatOpen(
            request_id=self._hold.request_id,
            account_id=principal.account_id,
            model=body.model,
            preferred_class=principal.preferred_class,
            tool_choice_json=body.tool_choice_json,
            stream=body.stream,
            max_tokens=body.max_tokens,
            parameters_json=body.parameters_json,
            grant=grant,
            key_id=principal.key_id,
            search=principal.search and not body.names_tool_choice,
            memory=principal.memory,
            attachments=principal.attachments,
            tells_acceptance=self._hold.tells_acceptance,
            prompt_cache_key_digest=body.prompt_cache_key_digest,
            shows_reasoning=body.shows_reasoning,
            has_unusual_names=body.has_unusual_names,
        )
        if body.kept_thinking_turns is not None:
            fields.kept_thinking_turns = body.kept_thinking_turns
        if principal.allowed_classes is not None:
            fields.allowed_classes.class_ids.extend(sorted(principal.allowed_classes))
        opening = ChatOpening(fields, body.messages_json, body.tools_json)
        body.messages_json = body.tools_json = b""
        return opening

    async def _route(self, opening: ChatOpening, affinity: str) -> tuple[ChatCall, router.ChatResponse]:
        """Calls the least loaded router, or the one that a big prompt prefers; retries once on another if that one is
        lost before its first response."""
        replica = self._edge.routers.least_loaded(affinity=affinity)
        try:
            self._call = call = replica.chat(opening, self._delivery)
            failpoints.hit("edge.routed")
            return call, await self._next_response(call)
        except ExchangeBroken:
            self._call = call = self._edge.routers.least_loaded(other_than=replica).chat(opening, self._delivery)
            return call, await self._next_response(call)

    async def _next_response(self, call: ChatCall) -> router.ChatResponse:
        """Returns the next response that has something for the client."""
        while (response := await call.receive()) is not None:
            if response.HasField("need"):
                self._hold.answer(call, response.need, self._delivery.delivered)
            if response.accepted:
                self._request.accepted_prompt_tokens = response.prompt_tokens
            if response.ignored:
                self._reply.record_ignored(response.ignored)
            if response.HasField("started"):
                self._reply.record_start(response.started)
                pads = self._body.pads_stream
                self._reply.is_padded = response.started.pads_streams if pads is None else pads
                self._request.started = response.started
            if response.contents or response.tool_calls or response.reasoning or response.HasField("finished"):
                return response
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence("answer_interrupted"))

    async def _end_early(self, refusal: LegatoError) -> "metering_pb.End.ValueType":
        """Ends the answer with `length` when its credit or its time limit is used up. Raises the refusal if there is no
        output yet."""
        if not self._delivery.output_tokens:
            raise refusal
        end = metering_pb.END_CREDIT_SPENT if self._hold.spent else metering_pb.END_COMPLETE
        await self._report_end("length", self._delivery.usage, metering_pb.BASIS_COUNTED, end)
        return end

    async def _finish(self, response: router.ChatResponse) -> "metering_pb.End.ValueType":
        finished = response.finished
        counted = finished.usage_source != router.USAGE_SOURCE_PROVIDER
        basis = metering_pb.BASIS_COUNTED if counted else metering_pb.BASIS_PROVIDER
        spent = self._hold.spent and counted and finished.finish_reason == "length"
        end = metering_pb.END_CREDIT_SPENT if spent else metering_pb.END_COMPLETE
        self._request.calls = finished.calls
        if finished.citations:
            self._reply.cite(finished.citations)
        if finished.stop_sequence:
            self._reply.record_stop(finished.stop_sequence)
        await self._report_end(finished.finish_reason, finished.usage, basis, end)
        return end

    async def _report_end(
        self, finish_reason: str, usage: Usage, basis: "metering_pb.Basis.ValueType", end: "metering_pb.End.ValueType"
    ) -> None:
        """Seals the end before it is told. If the client has nothing yet, as of an answer that is not streamed, the end
        is counted like a first piece, so that a client that received nothing is not charged."""
        self._enter(ChatStage.FINISHING)
        hold = self._hold
        if not self._delivery.output_tokens and not usage.completion_tokens:
            # An empty answer is not charged.
            hold.void(end, self._details())
        if self._delivery.count_end(usage):
            hold.settle(usage, basis, end, self._details())
        await self._reply.finish(finish_reason, usage, hold.cut_by if end == metering_pb.END_CREDIT_SPENT else "")
        if not hold.is_resolved:
            failpoints.hit("edge.relayed_first")
            # Sealed at once, which needs no mark.
            hold.settle(usage, basis, end, self._details())
        failpoints.hit("edge.told")

    def _details(self) -> ChatDetails:
        return self._request.details(self._clock.elapsed_s())

    def _end_by_error(self, error: BaseException) -> "metering_pb.End.ValueType":
        if not isinstance(error, LegatoError):
            return metering_pb.END_CRASHED
        if not self._reply.delivered:
            return metering_pb.END_REFUSED
        return metering_pb.END_KEY_REFUSED if self._admitted.running_key.is_refused else metering_pb.END_UPSTREAM_CUT

    def _public_error(self, error: BaseException) -> LegatoError:
        if isinstance(error, LegatoError):
            # The router knows that no more credit can be held, not why.
            is_of_credit = error.reason is Reason.CREDITS_EXHAUSTED
            return self._hold.spend_limit_refusal or error if is_of_credit else error
        if isinstance(error, asyncio.CancelledError):
            # The process shuts down and its drain time is over. The stream must still end with an error event.
            return unavailable("The service")
        self._edge.log.failure("chat.failed", error, request_id=self._hold.request_id)
        return internal_error()

    async def _break_off(self, error: LegatoError, end: "metering_pb.End.ValueType") -> None:
        """Settles, and ends the stream with an error event; raises the error if nothing was sent yet."""
        self._enter(ChatStage.FAILING)
        self._reply.stop_keeping_alive()
        if not self._reply.delivered:
            self._delivery.close()
        if not self._delivery.is_under_way:
            # Otherwise it is settled when that has ended, like an answer that is not streamed.
            self._settle(end)
        if self._claim is not None and not self._reply.is_open:
            # A client that retries at once, at any edge, must find its idempotency key free.
            await self._edge.metering.acknowledged(self._hold.request_id)
        if not self._reply.takes_failure(error):
            raise error
        self._edge.metrics.refused(error.reason, self._hold.api)
        self._count_failure(error.reason)
        self._admitted.step_timer.refused(error)
        await self._reply.fail(error)

    def _settle(self, end: "metering_pb.End.ValueType") -> None:
        """Charges what was delivered, or nothing if nothing was. Does nothing if the hold is settled already."""
        if self._hold.is_resolved:
            return
        if self._reply.delivered:
            self._hold.settle(self._delivery.usage, metering_pb.BASIS_COUNTED, end, self._details())
        else:
            self._hold.void(end, self._details(), self._request.accepted_prompt_tokens)

    def _count_failure(self, reason: str) -> None:
        failures, principal = self._edge.metering.failures, self._admitted.principal
        failures.count(principal, self._hold.class_id, reason, is_cut=self._reply.delivered)

    def _record_end(self, end: "metering_pb.End.ValueType") -> None:
        """Records the end in the log, in Prometheus and, if it is traced, in the trace."""
        step_timer, principal = self._admitted.step_timer, self._admitted.principal
        if (reason := _FAILED_ENDS.get(end)) is not None:
            self._count_failure(reason)
        first_piece_at_s = self._request.first_piece_at_s
        if first_piece_at_s is None:
            first_piece_s, ended_at_s = None, self._clock.elapsed_s()
        else:
            first_piece_s, ended_at_s = (
                first_piece_at_s - step_timer.began_s,
                step_timer.end_step(self._edge.metrics.relay),
            )
        took_s = ended_at_s - step_timer.began_s
        trace_id = "" if step_timer.span is None else step_timer.span.trace_id
        class_id, api, charged = self._hold.class_id, self._hold.api, self._hold.charged
        self._edge.metrics.ended(class_id, api, end, took_s, first_piece_s, charged, trace_id)
        self._edge.log.info(
            "chat.ended",
            request_id=self._hold.request_id,
            account_id=principal.account_id,
            key_id=principal.key_id,
            class_id=self._hold.class_id,
            stream=self._body.stream,
            tools=self._body.has_tools,
            end=OUTCOMES[end],
            prompt_tokens=self._delivery.prompt_tokens,
            completion_tokens=self._delivery.output_tokens,
            duration_ms=round(took_s * 1000, 1),
            **({"trace_id": trace_id} if trace_id else {}),
        )
        if step_timer.span is not None:
            step_timer.span.name = f"{OPERATION} {self._hold.class_id}"
            step_timer.span.attributes |= {
                "gen_ai.request.model": self._hold.class_id,
                "gen_ai.response.model": self._hold.class_id,
                "gen_ai.usage.cache_read.input_tokens": self._delivery.usage.cached_tokens,
                "gen_ai.usage.input_tokens": self._delivery.prompt_tokens,
                "gen_ai.usage.output_tokens": self._delivery.output_tokens,
                "legato.stream": self._body.stream,
                "legato.end": OUTCOMES[end],
            }

"""Admits a chat, reads its request and runs it. Refusals have the rate limit headers too."""

from dataclasses import dataclass

from edge.access.entrance import INFERENCE, AdmittedRequest, Entrance, announced_bytes, check_affordable
from edge.access.model_catalog import ModelCatalog
from edge.access.saturation import EdgeSaturation
from edge.backends.exchanges import RouterReplica
from edge.billing.hold import ChatHold
from edge.billing.journal import Journal
from edge.billing.metering import Metering
from edge.chat.chat import Chat
from edge.chat.idempotency import claim_in
from edge.chat.replies import StreamedReply, WholeReply
from edge.metrics import ChatMetrics, StepTimer, traced_step_timer
from edge.wire.chat_request import decode_chat
from edge.wire.requests import Bodies, ClientGone
from edge.wire.responses import Admission
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE, Headers, HttpScope, Receive, Send
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import Clock

# Key of the request's state: further headers of the response to an error that the chat raises.
REFUSAL_HEADERS = "refusal_headers"
# The prefix of a completion's id, before the id of its request.
COMPLETION_PREFIX = "chatcmpl-"

# Errors after which the client should retry later; they use nothing of its rate limits.
TAKES_NOTHING = frozenset(
    {
        Reason.TOO_MANY_AT_ONCE,
        Reason.CREDITS_HELD,
        Reason.SPEND_LIMIT_EXCEEDED,
        Reason.SATURATED,
        Reason.UNAVAILABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    entrance: Entrance
    models: ModelCatalog
    bodies: Bodies
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

    async def serve(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Answers one request as an ASGI application; `REFUSAL_HEADERS` has what its error response needs."""
        request_id: str = scope["state"]["request_id"]
        clock, metrics, tracer = self.clock, self.metrics, self.tracer
        admission: Admission | None = None
        step_timer = (
            StepTimer(clock) if tracer is None else traced_step_timer(clock, tracer, scope["headers"], request_id)
        )
        try:
            principal = await self.entrance.identify(scope, INFERENCE)
            step_timer.end_step(metrics.auth)
            self.entrance.require_service()
            with (
                self.entrance.track_key(principal) as running_key,
                self.entrance.hold_place(principal.account_id, 1),
                self.entrance.acquire_permit(principal.key_id),
                self.entrance.hold_memory(principal.account_id) as prompt_memory,
            ):
                admission = await self.entrance.charge_request(principal, scope)
                step_timer.end_step(metrics.rate)
                admitted = AdmittedRequest(principal, running_key, admission, step_timer, prompt_memory)
                chat = await self._open(scope, receive, send, request_id, admitted)
                await chat.run(scope[WHEN_GONE])
        except LegatoError as error:
            refusal = error if admission is None else await self._charge_refused(admission, error)
            step_timer.refused(refusal)
            scope["state"][REFUSAL_HEADERS] = await self._rates(scope, refusal, admission)
            raise refusal from None
        except BaseException as error:
            if admission is not None and admission.is_pending and not admission.is_asked_for:
                self.metering.admit_later(admission)
            if not isinstance(error, ClientGone):
                raise
        finally:
            if admission is not None:
                # No tokens were used, unless the chat has said otherwise.
                admission.use(0)
            step_timer.close()

    async def _charge_refused(self, admission: Admission, error: LegatoError) -> LegatoError:
        """Charges a chat that was refused before its hold to the rate limits. Returns their refusal, which comes first,
        or the error."""
        if admission.is_pending and error.reason not in (Reason.RATE_LIMITED, Reason.UNAVAILABLE):
            try:
                await self.metering.admit_pending(admission)
            except LegatoError as refusal:
                return refusal
        return error

    async def _rates(self, scope: HttpScope, error: LegatoError, admission: Admission | None) -> Headers:
        """Returns the rate headers of a refused chat, after what it did not use was given back."""
        if admission is None or admission.is_pending:
            return await self.entrance.rates(scope, error)
        if error.reason in TAKES_NOTHING:
            admission.give_back()
        admission.use(0)
        # The error itself reports a limit that is reached.
        return [] if error.reason is Reason.RATE_LIMITED else admission.headers

    async def _open(
        self, scope: HttpScope, receive: Receive, send: Send, request_id: str, admitted: AdmittedRequest
    ) -> Chat:
        given = await self._read(scope, receive, admitted)
        if not admitted.admission.is_pending:
            await self.entrance.charge_body(admitted, len(given))
        body = await decode_chat(given)
        claim = await claim_in(scope["headers"], given, admitted.principal)
        class_id = self.models.class_for(body.model, admitted.principal)
        if WHEN_GONE not in scope:
            # The client has disconnected meanwhile.
            raise ClientGone
        created_s = int(self.clock.now().timestamp())
        reply_type = StreamedReply if body.stream else WholeReply
        return Chat(
            admitted,
            body,
            ChatHold(self.metering, self.journal, admitted.principal, request_id, class_id),
            reply_type(
                send,
                scope[BODY_WRITER],
                f"{COMPLETION_PREFIX}{request_id}",
                created_s,
                class_id,
                body.ignored,
            ),
            routers=self.routers,
            saturation=self.saturation,
            life_s=self.life_s,
            keepalive_s=self.keepalive_s,
            clock=self.clock,
            log=self.log,
            metrics=self.metrics,
            claim=claim,
        )

    async def _read(self, scope: HttpScope, receive: Receive, admitted: AdmittedRequest) -> bytes:
        metering, announced = self.metering, len(scope[BODY]) if BODY in scope else announced_bytes(scope)
        if announced is not None:
            await check_affordable(metering, admitted.principal, announced)
            return await self.bodies.read(scope, receive, admitted.prompt_memory)
        given = await self.bodies.read(scope, receive, admitted.prompt_memory)
        await check_affordable(metering, admitted.principal, len(given))
        return given

"""POST /v1/chat/completions: lets a chat in, reads what it asks, and tells what is refused before it begins."""

from dataclasses import dataclass

from edge.access.affordability import announced_bytes, check_affordable
from edge.access.entrance import INFERENCE, AdmittedRequest, Entrance
from edge.api.models import Models
from edge.api.usage_request import COMPLETION_PREFIX
from edge.chat.chat import Chat, ChatDependencies
from edge.chat.idempotency import claim_in
from edge.chat.replies import StreamedReply, WholeReply
from edge.step_timer import StepTimer, traced_step_timer
from edge.wire.asgi import WHEN_GONE, HttpScope, Receive, Send
from edge.wire.body_reader import Bodies, ClientGone
from edge.wire.chat_request import decode_chat
from edge.wire.responses import send_error
from services.chassis.errors import LegatoError, Reason

# Who is told to come back later has used nothing up.
TAKES_NOTHING = frozenset({Reason.TOO_MANY_AT_ONCE, Reason.CREDITS_HELD, Reason.SATURATED, Reason.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    entrance: Entrance
    models: Models
    bodies: Bodies
    dependencies: ChatDependencies

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send, request_id: str) -> None:
        clock, metrics, tracer = self.dependencies.clock, self.dependencies.metrics, self.dependencies.tracer
        step_timer = (
            StepTimer(clock) if tracer is None else traced_step_timer(clock, tracer, scope["headers"], request_id)
        )
        try:
            principal = await self.entrance.identify(scope, INFERENCE)
            step_timer.end_step(metrics.auth)
            self.entrance.require_service()
            with self.entrance.track_key(principal) as running_key, self.entrance.acquire_permit(principal):
                admission = await self.entrance.charge_request(principal, scope)
                step_timer.end_step(metrics.rate)
                await self._serve(
                    scope, receive, send, request_id, AdmittedRequest(principal, running_key, admission, step_timer)
                )
        except LegatoError as error:
            # It was not let in.
            self._note_refusal(error, request_id, step_timer)
            await send_error(send, error, await self.entrance.rates(scope, error))
        finally:
            step_timer.close()

    async def _serve(
        self, scope: HttpScope, receive: Receive, send: Send, request_id: str, admitted: AdmittedRequest
    ) -> None:
        admission = admitted.admission
        try:
            chat = await self._open(scope, receive, send, request_id, admitted)
            if WHEN_GONE not in scope:
                # Whoever asked has left meanwhile.
                raise ClientGone
            await chat.run_while_heard(scope[WHEN_GONE])
        except LegatoError as error:
            self._note_refusal(error, request_id, admitted.step_timer)
            if error.reason in TAKES_NOTHING:
                admission.give_back()
            # Where no chat came of it, no tokens were used; and whoever is told so is told what is left.
            admission.use(0)
            # A limit that is reached is told by the error itself.
            headers = [] if error.reason is Reason.RATE_LIMITED else admission.headers
            await send_error(send, error, headers)
        finally:
            # Also where whoever asked has left.
            admission.use(0)

    def _note_refusal(self, error: LegatoError, request_id: str, step_timer: StepTimer) -> None:
        self.dependencies.metrics.refused(error.reason)
        self.dependencies.log.debug(
            "chat.refused", request_id=request_id, reason=error.reason, http_status=error.wire.http_status
        )
        step_timer.refused(error)

    async def _open(
        self, scope: HttpScope, receive: Receive, send: Send, request_id: str, admitted: AdmittedRequest
    ) -> Chat:
        given = await self._read(scope, receive, admitted)
        await self.entrance.charge_body(admitted, len(given))
        body = await decode_chat(given)
        claim = await claim_in(scope["headers"], given, admitted.principal)
        class_id = self.models.class_for(body.model, admitted.principal)
        created_s = int(self.dependencies.clock.now().timestamp())
        reply_type = StreamedReply if body.stream else WholeReply
        reply = reply_type(send, f"{COMPLETION_PREFIX}{request_id}", created_s, class_id, admitted.admission.headers)
        return Chat(self.dependencies, admitted, body, class_id, request_id, reply, claim)

    async def _read(self, scope: HttpScope, receive: Receive, admitted: AdmittedRequest) -> bytes:
        metering, announced = self.dependencies.metering, announced_bytes(scope)
        if announced is not None:
            await check_affordable(metering, admitted.principal, announced)
            return await self.bodies.read(scope, receive, admitted.principal.account_id)
        given = await self.bodies.read(scope, receive, admitted.principal.account_id)
        await check_affordable(metering, admitted.principal, len(given))
        return given

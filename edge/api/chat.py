"""POST /v1/chat/completions: admits a chat and reads its request. Refusals have the rate limit headers too."""

from collections.abc import Awaitable
from dataclasses import dataclass

from edge.access.affordability import announced_bytes, check_affordable
from edge.access.entrance import AdmittedRequest, Entrance
from edge.api.models import Models
from edge.api.usage_request import COMPLETION_PREFIX
from edge.chat.chat import Chat, ChatDependencies
from edge.chat.idempotency import claim_in
from edge.chat.replies import StreamedReply, WholeReply
from edge.principal import Scope
from edge.step_timer import StepTimer, traced_step_timer
from edge.wire.asgi import WHEN_GONE, HttpScope, Receive, Send
from edge.wire.body_reader import Bodies, ClientGone
from edge.wire.chat_request import decode_chat
from edge.wire.responses import Response
from services.chassis.errors import LegatoError, Reason

# Errors after which the client should retry later; they use nothing of its rate limits.
TAKES_NOTHING = frozenset({Reason.TOO_MANY_AT_ONCE, Reason.CREDITS_HELD, Reason.SATURATED, Reason.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    entrance: Entrance
    models: Models
    bodies: Bodies
    dependencies: ChatDependencies

    async def serve(
        self, needed_scope: "Scope.ValueType", scope: HttpScope, receive: Receive, response: Response, request_id: str
    ) -> None:
        clock, metrics, tracer = self.dependencies.clock, self.dependencies.metrics, self.dependencies.tracer
        is_admitted = False
        step_timer = (
            StepTimer(clock) if tracer is None else traced_step_timer(clock, tracer, scope["headers"], request_id)
        )
        try:
            principal = await self.entrance.identify(scope, needed_scope)
            step_timer.end_step(metrics.auth)
            self.entrance.require_service()
            with self.entrance.track_key(principal) as running_key, self.entrance.acquire_permit(principal):
                admission = await self.entrance.charge_request(principal, scope)
                is_admitted = True
                step_timer.end_step(metrics.rate)
                admitted = AdmittedRequest(principal, running_key, admission, step_timer)
                await self._serve(scope, receive, response, request_id, admitted)
        except LegatoError as error:
            step_timer.refused(error)
            if not is_admitted:
                response.put_headers(await self.entrance.rates(scope, error))
            raise
        finally:
            step_timer.close()

    async def _serve(
        self, scope: HttpScope, receive: Receive, response: Response, request_id: str, admitted: AdmittedRequest
    ) -> None:
        admission = admitted.admission
        try:
            chat = await self._open(scope, receive, response.send, request_id, admitted)
            if WHEN_GONE not in scope:
                # The client has disconnected.
                raise ClientGone
            await chat.run_while_heard(scope[WHEN_GONE])
        except LegatoError as error:
            if error.reason in TAKES_NOTHING:
                admission.give_back()
            # No tokens were used, and the headers report what remains.
            admission.use(0)
            # Rate limit errors have their own headers.
            if error.reason is not Reason.RATE_LIMITED:
                response.put_headers(admission.headers)
            raise
        finally:
            # Also after a disconnect.
            admission.use(0)

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


def create_chat_completion(
    *,
    chat: ChatEndpoint,
    needed_scope: "Scope.ValueType",
    scope: HttpScope,
    receive: Receive,
    response: Response,
    request_id: str,
) -> Awaitable[None]:
    return chat.serve(needed_scope, scope, receive, response, request_id)

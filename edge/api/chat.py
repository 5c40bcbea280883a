"""POST /v1/chat/completions: lets a chat in and reads what it asks. What is refused has its rates in the headers."""

from collections.abc import Awaitable
from dataclasses import dataclass

from edge.access.affordability import announced_bytes, check_affordable
from edge.access.entrance import Entrance, Visit
from edge.api.models import Models
from edge.api.usage_request import COMPLETION_PREFIX
from edge.chat.chat import Chat, Surroundings
from edge.chat.idempotency import claim_in
from edge.chat.replies import StreamedReply, WholeReply
from edge.principal import Scope
from edge.step_timer import Laps, traced_laps
from edge.wire.asgi import WHEN_GONE, HttpScope, Receive, Send
from edge.wire.body_reader import Bodies, ClientGone
from edge.wire.chat_request import decode_chat
from edge.wire.responses import Response
from services.chassis.errors import LegatoError, Reason

# Who is told to come back later has used nothing up.
TAKES_NOTHING = frozenset({Reason.TOO_MANY_AT_ONCE, Reason.CREDITS_HELD, Reason.SATURATED, Reason.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    entrance: Entrance
    models: Models
    bodies: Bodies
    surroundings: Surroundings

    async def serve(
        self, needed_scope: "Scope.ValueType", scope: HttpScope, receive: Receive, response: Response, request_id: str
    ) -> None:
        clock, metrics, tracer = self.surroundings.clock, self.surroundings.metrics, self.surroundings.tracer
        is_let_in = False
        laps = Laps(clock) if tracer is None else traced_laps(clock, tracer, scope["headers"], request_id)
        try:
            principal = await self.entrance.identify(scope, needed_scope)
            laps.end(metrics.auth)
            self.entrance.require_service()
            with self.entrance.standing(principal) as standing, self.entrance.place(principal):
                admission = await self.entrance.take(principal, scope)
                is_let_in = True
                laps.end(metrics.rate)
                visit = Visit(principal, standing, admission, laps)
                await self._serve(scope, receive, response, request_id, visit)
        except LegatoError as error:
            laps.refused(error)
            if not is_let_in:
                response.put_headers(await self.entrance.rates(scope, error))
            raise
        finally:
            laps.close()

    async def _serve(
        self, scope: HttpScope, receive: Receive, response: Response, request_id: str, visit: Visit
    ) -> None:
        admission = visit.admission
        try:
            chat = await self._open(scope, receive, response.send, request_id, visit)
            if WHEN_GONE not in scope:
                # Whoever asked has left meanwhile.
                raise ClientGone
            await chat.run_while_heard(scope[WHEN_GONE])
        except LegatoError as error:
            if error.reason in TAKES_NOTHING:
                admission.give_back()
            # Where no chat came of it, no tokens were used; and whoever is told so is told what is left.
            admission.use(0)
            # A limit that is reached is told by the error itself.
            if error.reason is not Reason.RATE_LIMITED:
                response.put_headers(admission.headers)
            raise
        finally:
            # Also where whoever asked has left.
            admission.use(0)

    async def _open(self, scope: HttpScope, receive: Receive, send: Send, request_id: str, visit: Visit) -> Chat:
        given = await self._read(scope, receive, visit)
        await self.entrance.take_body(visit, len(given))
        body = await decode_chat(given)
        claim = await claim_in(scope["headers"], given, visit.principal)
        class_id = self.models.class_for(body.model, visit.principal)
        created_s = int(self.surroundings.clock.now().timestamp())
        reply_type = StreamedReply if body.stream else WholeReply
        reply = reply_type(send, f"{COMPLETION_PREFIX}{request_id}", created_s, class_id, visit.admission.headers)
        return Chat(self.surroundings, visit, body, class_id, request_id, reply, claim)

    async def _read(self, scope: HttpScope, receive: Receive, visit: Visit) -> bytes:
        metering, announced = self.surroundings.metering, announced_bytes(scope)
        if announced is not None:
            await check_affordable(metering, visit.principal, announced)
            return await self.bodies.read(scope, receive, visit.principal.account_id)
        given = await self.bodies.read(scope, receive, visit.principal.account_id)
        await check_affordable(metering, visit.principal, len(given))
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

"""Admits a chat, reads its request and runs it. Refusals have the rate limit headers too."""

from dataclasses import dataclass
from typing import Final

from edge.access.model_catalog import ModelCatalog
from edge.access.principals import Principals
from edge.backends.auth import Scope
from edge.billing.affordability import check_affordable
from edge.billing.hold import ChatHold
from edge.billing.prompt_estimate import guess_body_tokens
from edge.billing.rate_limits import Admission
from edge.chat.chat import AdmittedRequest, Chat, ChatServices
from edge.chat.chat_metrics import StepTimer, traced_step_timer
from edge.chat.idempotency import claim_in
from edge.chat.replies import new_reply
from edge.wire.body_reader import ClientGone, announced_bytes, read_body
from edge.wire.chat_request import decode_chat
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE, Headers, HttpScope, Receive, Send
from services.chassis.load.fair_budget import FairBudget
from services.chassis.telemetry.tracing import Tracer

# Key of the request's state: further headers of the response to an error that the chat raises.
REFUSAL_HEADERS = "refusal_headers"
# The prefix of a completion's id, before the id of its request.
COMPLETION_PREFIX = "chatcmpl-"
# Bound once, since looking it up in its enumeration takes longer than all else that is done with it.
INFERENCE: Final = Scope.SCOPE_INFERENCE

# A body of this size that has arrived costs no more to check than to refuse.
SMALL_BODY_BYTES: Final = 16 * 1024

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
    principals: Principals
    models: ModelCatalog
    # The edge's connections, and its memory for prompts: each account may have its share of them.
    places: FairBudget
    prompt_memory: FairBudget
    services: ChatServices
    # None disables tracing.
    tracer: Tracer | None = None

    async def serve(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Answers one request as an ASGI application; `REFUSAL_HEADERS` has what its error response needs."""
        request_id: str = scope["state"]["request_id"]
        services, tracer = self.services, self.tracer
        admission: Admission | None = None
        step_timer = (
            StepTimer(services.clock)
            if tracer is None
            else traced_step_timer(services.clock, tracer, scope["headers"], request_id)
        )
        try:
            # In the order of what a refusal costs; and a chat refused at saturation is not charged to its rate limit.
            principal = await self.principals.identify(scope, INFERENCE)
            step_timer.end_step(services.metrics.auth)
            self.principals.maintenance.raise_if_on()
            with (
                self.principals.track_key(principal) as running_key,
                self.places.hold(principal.account_id, 1),
                services.saturation.acquire_permit(principal.key_id),
                self.prompt_memory.hold(principal.account_id) as prompt_memory,
            ):
                announced = announced_bytes(scope)
                tokens = guess_body_tokens(announced or 0)
                if BODY in scope and len(scope[BODY]) <= SMALL_BODY_BYTES:
                    # Pending: asked for with the hold.
                    admission = services.metering.prepare_admission(principal, tokens)
                else:
                    admission = await services.metering.admit(principal, tokens)
                step_timer.end_step(services.metrics.rate)
                admitted = AdmittedRequest(principal, running_key, admission, step_timer, prompt_memory)
                chat = await self._open(scope, receive, send, request_id, admitted, announced)
                await chat.run(scope[WHEN_GONE])
        except LegatoError as error:
            refusal = error if admission is None else await self._charge_refused(admission, error)
            step_timer.refused(refusal)
            scope["state"][REFUSAL_HEADERS] = await self._rates(scope, refusal, admission)
            raise refusal from None
        except BaseException as error:
            if admission is not None and admission.is_pending and not admission.is_asked_for:
                services.metering.admit_later(admission)
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
                await self.services.metering.admit_pending(admission)
            except LegatoError as refusal:
                return refusal
        return error

    async def _rates(self, scope: HttpScope, error: LegatoError, admission: Admission | None) -> Headers:
        """Returns the rate headers of a refused chat, after what it did not use was given back: those of its admission
        or its key, or without a valid key those for wrong keys."""
        metering = self.services.metering
        if admission is not None and not admission.is_pending:
            if error.reason in TAKES_NOTHING:
                admission.give_back()
            admission.use(0)
        if error.reason is Reason.RATE_LIMITED:
            # Its error carries them already.
            return []
        if admission is not None and not admission.is_pending:
            return admission.headers
        principal = self.principals.recall(scope["headers"])
        if principal is None:
            return self.principals.wrong_key_limiter.rates(scope)
        if error.reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE):
            # The request has waited for metering already, or metering may be under maintenance.
            return metering.last_rates(principal) or []
        try:
            return await metering.rates(principal)
        except LegatoError:
            # Metering is down, and nothing is cached for this key.
            return []

    async def _open(
        self,
        scope: HttpScope,
        receive: Receive,
        send: Send,
        request_id: str,
        admitted: AdmittedRequest,
        announced: int | None,
    ) -> Chat:
        """Reads and validates the request; `announced` is the length of its body, if that is known already."""
        services, principal, admission = self.services, admitted.principal, admitted.admission
        if announced is not None:
            await check_affordable(services.metering, principal, announced)
        given = await read_body(scope, receive, admitted.prompt_memory)
        if announced is None:
            await check_affordable(services.metering, principal, len(given))
        if not admission.is_pending:
            # A body of unknown length is charged by its actual size, before it is processed.
            await services.metering.take_tokens(principal, admission, guess_body_tokens(len(given)))
        body = await decode_chat(given)
        claim = await claim_in(scope["headers"], given, principal)
        class_id = self.models.class_for(body.model, principal)
        if WHEN_GONE not in scope:
            # The client has disconnected meanwhile.
            raise ClientGone
        hold = ChatHold(services.metering, services.journal, principal, request_id, class_id)
        reply = new_reply(
            send,
            scope[BODY_WRITER],
            f"{COMPLETION_PREFIX}{request_id}",
            int(services.clock.now().timestamp()),
            class_id,
            body.ignored,
            stream=body.stream,
        )
        return Chat(services, admitted, body, hold, reply, claim)

"""Admits a chat, reads its request and runs it. Refusals tell the rate limits too."""

from edge.backends.auth import Principal
from edge.backends.outage_wait import HELD_BYTES, end_request
from edge.billing.affordability import check_affordable
from edge.billing.hold import ChatHold
from edge.billing.prompt_estimate import guess_body_tokens
from edge.billing.rate_limits import Admission
from edge.chat.chat import AdmittedRequest, Chat
from edge.chat.chat_metrics import StepTimer, begin_span
from edge.chat.edge_state import EdgeState
from edge.chat.idempotency import claim_in
from edge.chat.incoming import IncomingChat
from edge.wire.body_reader import ClientGone
from edge.wire.chat_request import decode_chat
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Headers, HttpScope

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


class ChatEndpoint:
    def __init__(self, edge: EdgeState) -> None:
        self._edge = edge

    async def serve(self, incoming: IncomingChat) -> None:
        """Answers one chat. Raises its refusal, whose rate limits `incoming` has."""
        edge = self._edge
        principal: Principal | None = None
        admission: Admission | None = None
        admitted: AdmittedRequest | None = None
        span = begin_span(edge.tracer, incoming.scope["headers"], incoming.request_id, incoming.span_attributes)
        with StepTimer(edge.clock, span) as step_timer:
            try:
                # In the order of what a refusal costs; and a chat refused at saturation is not charged to its rate
                # limit.
                principal = await incoming.identify(edge.principals)
                step_timer.end_step(edge.metrics.auth)
                edge.principals.maintenance.raise_if_on()
                with (
                    edge.principals.track_key(principal) as running_key,
                    edge.places.hold(principal.account_id, 1),
                    edge.saturation.gate.acquire(principal.key_id),
                    edge.prompt_memory.hold(principal.account_id) as prompt_memory,
                ):
                    await incoming.arrive(principal, prompt_memory)
                    admission = edge.metering.prepare_admission(
                        principal, guess_body_tokens(incoming.announced_bytes or 0)
                    )
                    if not incoming.has_small_body:
                        # Otherwise it is pending: asked for with the hold.
                        await edge.metering.admit_pending(admission)
                    step_timer.end_step(edge.metrics.rate)
                    admitted = AdmittedRequest(principal, running_key, admission, step_timer, prompt_memory)
                    chat = await self._open(incoming, admitted)
                    await chat.run(incoming.when_gone)
            except LegatoError as error:
                refusal = error if admission is None else await self._charge_refused(admission, error)
                self._count_refusal(incoming.scope, refusal, principal, admitted)
                incoming.record_rates(await self._rates(incoming.scope, refusal, principal, admission))
                raise refusal from None
            except BaseException as error:
                if admission is not None and admission.is_pending and not admission.is_asked_for:
                    edge.metering.admit_later(admission)
                if not isinstance(error, ClientGone):
                    raise
            finally:
                if admission is not None:
                    # No tokens were used, unless the chat has said otherwise.
                    admission.use(0)
                end_request()

    def _count_refusal(
        self, scope: HttpScope, error: LegatoError, principal: Principal | None, admitted: AdmittedRequest | None
    ) -> None:
        """Counts a refusal for the account whose key it is of, if that is known."""
        principal = principal or self._edge.principals.recall(scope["headers"])
        if principal is not None and error.reason is not Reason.KEY_INVALID:
            class_id = "" if admitted is None else admitted.class_id
            self._edge.metering.failures.count(principal, class_id, error.reason)

    async def _charge_refused(self, admission: Admission, error: LegatoError) -> LegatoError:
        """Charges a chat that was refused before its hold to the rate limits. Returns their refusal, which comes first,
        or the error."""
        if admission.is_pending and error.reason not in (Reason.RATE_LIMITED, Reason.UNAVAILABLE):
            try:
                await self._edge.metering.admit_pending(admission)
            except LegatoError as refusal:
                return refusal
        return error

    async def _rates(
        self, scope: HttpScope, error: LegatoError, principal: Principal | None, admission: Admission | None
    ) -> Headers:
        """Returns the rate headers of a refused chat, after what it did not use was given back: those of its admission
        or its key, or without a valid key those for wrong keys."""
        edge = self._edge
        if admission is not None and not admission.is_pending:
            if error.reason in TAKES_NOTHING:
                admission.give_back()
            admission.use(0)
        if error.reason is Reason.RATE_LIMITED:
            # Its error carries them already.
            return []
        if admission is not None and not admission.is_pending:
            return admission.headers
        principal = principal or edge.principals.recall(scope["headers"])
        if principal is None:
            return edge.principals.wrong_key_limiter.rates(scope)
        if error.reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE):
            # The request has waited for metering already, or metering may be under maintenance.
            return edge.metering.last_rates(principal) or []
        try:
            return await edge.metering.rates(principal)
        except LegatoError:
            # Metering is down, and nothing is cached for this key.
            return []

    async def _open(self, incoming: IncomingChat, admitted: AdmittedRequest) -> Chat:
        """Reads and validates the request."""
        edge, principal, admission = self._edge, admitted.principal, admitted.admission
        announced = incoming.announced_bytes
        if announced is not None:
            await check_affordable(edge.metering, principal, announced)
        given = await incoming.read(admitted.prompt_memory)
        incoming.scope[HELD_BYTES] = len(given)
        if announced is None:
            await check_affordable(edge.metering, principal, len(given))
            # A body of unknown length is charged by its actual size, before it is processed.
            await edge.metering.admit_longer(admission, guess_body_tokens(len(given)))
        body = await decode_chat(given)
        claim = await claim_in(incoming.scope["headers"], given, principal)
        class_id = admitted.class_id = edge.models.class_for(body.model, principal)
        if incoming.when_gone is None:
            # The client has disconnected meanwhile.
            raise ClientGone
        hold = ChatHold(edge.metering, edge.journal, principal, incoming.request_id, class_id, incoming.api)
        return Chat(edge, admitted, body, hold, incoming.open_reply(body, hold), claim)

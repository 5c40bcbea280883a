"""POST /v1/chat/completions: admits a chat and reads its request. Refusals have the rate limit headers too."""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from edge.access.entrance import AdmittedRequest, Entrance, announced_bytes, check_affordable
from edge.access.saturation import EdgeSaturation
from edge.api.usage import COMPLETION_PREFIX
from edge.backends.auth import Principal, Scope
from edge.backends.exchanges import RouterReplica
from edge.billing.hold import ChatHold
from edge.billing.journal import Journal
from edge.billing.metering import Metering
from edge.chat.chat import Chat
from edge.chat.replies import StreamedReply, WholeReply
from edge.metrics import ChatMetrics, StepTimer, traced_step_timer
from edge.wire.chat_request import decode_chat
from edge.wire.requests import Bodies, ClientGone
from edge.wire.responses import Admission, Response
from protos.metering.v1.metering_pb2 import IdempotencyClaim
from protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE, Headers, HttpScope, Receive, Send
from services.chassis.model_classes import AUTO
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import Clock

REFRESH_EVERY_S = 30.0
ASK_AGAIN_AFTER_S = 0.1
ASK_TIMEOUT_S = 5.0


class Models:
    def __init__(self, routers: Replicas[RouterReplica]) -> None:
        self._routers = routers
        self._objects: dict[str, dict[str, Any]] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()

    def start(self) -> None:
        self._refresher = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)

    async def known(self) -> None:
        """Returns when the router has answered for the first time."""
        await self._heard.wait()

    def list_object(self, principal: Principal) -> dict[str, Any]:
        return {"object": "list", "data": list(self._usable(principal).values())}

    def model_object(self, model_id: str, principal: Principal) -> dict[str, Any]:
        model = self._usable(principal).get(model_id)
        if model is None:
            raise LegatoError(Reason.MODEL_NOT_FOUND, "There is no such model.", param="model")
        return model

    def class_for(self, model_id: str, principal: Principal) -> str:
        """Returns the class that serves a chat for `model_id`."""
        usable = self._usable(principal)
        if model_id not in usable:
            hint = f" Use one of {', '.join(usable)}." if usable else ""
            raise LegatoError(Reason.MODEL_UNKNOWN, f"There is no such model.{hint}", param="model")
        return principal.preferred_class if model_id == AUTO else model_id

    def _usable(self, principal: Principal) -> dict[str, dict[str, Any]]:
        """Returns the models that exist for this key: `auto`, if it may use any class, and those classes."""
        known = self._objects
        if not known:
            raise unavailable("The router")
        if principal.allowed_classes is None:
            return known
        usable = {model_id: model for model_id, model in known.items() if principal.may_use(model_id)}
        return {AUTO: known[AUTO], **usable} if usable and AUTO in known else usable

    async def _keep_fresh(self) -> None:
        while True:
            try:
                with errors_of("The router"):
                    stub = self._routers.least_loaded().stub
                    models = (await stub.ListModels(router.ListModelsRequest(), timeout=ASK_TIMEOUT_S)).models
            except LegatoError:
                # The previous list stays valid; without one, the next attempt follows soon.
                await asyncio.sleep(REFRESH_EVERY_S if self._objects else ASK_AGAIN_AFTER_S)
                continue
            self._objects = {model.model_id: _model_object(model) for model in models}
            self._heard.set()
            await asyncio.sleep(REFRESH_EVERY_S)


async def list_models(*, models: Models, principal: Principal) -> dict[str, Any]:
    return models.list_object(principal)


async def get_model(*, models: Models, model_id: str, principal: Principal) -> dict[str, Any]:
    return models.model_object(model_id, principal)


def _model_object(model: router.Model) -> dict[str, Any]:
    return {
        "id": model.model_id,
        "object": "model",
        "created": model.create_time.seconds,
        "owned_by": model.owner,
    }


# Idempotency-Key: a key that a client gives its request, so that a retry of it is not served again.
#
# Neither the key nor the body may be stored. Metering gets HMAC digests of both, under a secret of the account that
# it does not know: whoever reads its tables cannot test guesses against them.

_HEADER: Final = "Idempotency-Key"
_FIELD: Final = _HEADER.lower().encode()
LONGEST_KEY: Final = 255
# A digest of more than this takes a good part of a millisecond, so it runs in a thread; it releases the GIL.
_DIGEST_AT_ONCE_BYTES: Final = 256 * 1024
_PRINTABLE: Final = re.compile(rb"[ -~]{1,%d}" % LONGEST_KEY)


async def claim_in(
    headers: Iterable[tuple[bytes, bytes]], body: bytes, principal: Principal
) -> IdempotencyClaim | None:
    """Returns the request's claim to its idempotency key, or None if it has none."""
    given = [value for name, value in headers if name == _FIELD]
    if not given:
        return None
    if len(given) > 1 or not _PRINTABLE.fullmatch(given[0]):
        message = f"{_HEADER} must be given once, and have 1 to {LONGEST_KEY} printable ASCII characters."
        raise LegatoError(Reason.REQUEST_INVALID, message, param=_HEADER)
    if not principal.digest_key:
        # The auth service predates digest keys. A digest without a key could be guessed.
        raise unavailable("Authentication")
    return IdempotencyClaim(
        key_digest=_digest(principal.digest_key, given[0]), body_digest=await _body_digest(principal.digest_key, body)
    )


async def _body_digest(key: bytes, body: bytes) -> bytes:
    if len(body) <= _DIGEST_AT_ONCE_BYTES:
        return _digest(key, body)
    return await asyncio.to_thread(_digest, key, body)


def _digest(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")


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
    models: Models
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

    async def serve(
        self, needed_scope: "Scope.ValueType", scope: HttpScope, receive: Receive, response: Response, request_id: str
    ) -> None:
        clock, metrics, tracer = self.clock, self.metrics, self.tracer
        admission: Admission | None = None
        step_timer = (
            StepTimer(clock) if tracer is None else traced_step_timer(clock, tracer, scope["headers"], request_id)
        )
        try:
            principal = await self.entrance.identify(scope, needed_scope)
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
                chat = await self._open(scope, receive, response.send, request_id, admitted)
                await chat.run(scope[WHEN_GONE])
        except LegatoError as error:
            refusal = error if admission is None else await self._charge_refused(admission, error)
            step_timer.refused(refusal)
            response.put_headers(await self._rates(scope, refusal, admission))
            raise refusal from None
        except BaseException:
            if admission is not None and admission.is_pending and not admission.is_asked_for:
                self.metering.admit_later(admission)
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

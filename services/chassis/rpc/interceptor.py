"""Intercepts every RPC of a server."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Never

import grpc
import grpc.aio
from grpc_status import rpc_status

from services.chassis.access_tokens import Access, AccessTokenVerifier, current_access
from services.chassis.errors import LegatoError, forget_origin, internal_error, to_status
from services.chassis.rpc.access_check import AccessCheck, check_account
from services.chassis.rpc.callers import (
    CONSOLES,
    Context,
    Role,
    current_role,
    is_secured,
    names_of,
    not_allowed,
    role_of,
    roles_for,
)
from services.chassis.telemetry.log import Log

_KINDS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
# Clients wait for so long before they repeat a call by themselves. What takes longer, a program is told at once.
_LONGEST_PUSHBACK_S: Final = 5.0
# Handlers as grpcio calls them.
_Answer = Callable[[object, Context], Awaitable[object]]
_Stream = Callable[[AsyncIterator[Any], Context], AsyncGenerator[object, None]]
_Metadata = tuple[tuple[str, str | bytes], ...]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Rejects callers without permission, and turns every exception into a status with its reason."""

    def __init__(self, log: Log, access: AccessCheck | None = None, socket_role: Role | None = None) -> None:
        """Prepares it; `socket_role` is the role of callers without a certificate. None: they may do everything."""
        self._log = log
        # Without public keys, every token is refused.
        self._access = access or AccessCheck(AccessTokenVerifier(""), lambda: 0)
        self._socket_role = socket_role
        # By method, with the handler that is guarded.
        self._guarded: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None:
            return None
        known, guarded = self._guarded.get(method, (None, None))
        if known is not handler:
            guarded = self._guard(handler, method)
            self._guarded[method] = handler, guarded
        return guarded

    def _guard(self, handler: Any, method: str) -> Any:
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        behaviour = getattr(handler, kind)
        # A coroutine answers in one piece, or writes to its context itself; anything else is a generator of answers.
        is_stream = handler.response_streaming and not inspect.iscoroutinefunction(behaviour)
        guard = self._guard_stream if is_stream else self._guard_call
        return handler._replace(**{kind: guard(behaviour, method)})

    def _guard_call(self, behaviour: _Answer, method: str) -> _Answer:
        async def guarded(request: object, context: Context) -> object:
            try:
                access = await self._check(context, method)
                if access is not None:
                    check_account(access, method, request)
                return await behaviour(request, context)
            except (Exception, asyncio.CancelledError) as error:
                status = self._status_of(error)
            del request
            return await _abort(context, *status)

        return guarded

    def _guard_stream(self, behaviour: _Stream, method: str) -> _Stream:
        async def guarded(requests: AsyncIterator[Any], context: Context) -> AsyncGenerator[object, None]:
            response = None
            try:
                access = await self._check(context, method)
                if access is not None:
                    requests = _of_account(requests, access, method)
                async with contextlib.aclosing(behaviour(requests, context)) as responses:
                    async for response in responses:
                        yield response
                return
            except (Exception, asyncio.CancelledError) as error:
                status = self._status_of(error)
            del response
            await _abort(context, *status)

        return guarded

    async def _check(self, context: Context, method: str) -> Access | None:
        """Returns the access of a console's call, which becomes the current one; others need none."""
        # Asked once, since it costs more than the rest of this.
        is_secure = is_secured(context)
        role = role_of(names_of(context)) if is_secure else self._socket_role
        if is_secure or role is not None:
            if role not in roles_for(method):
                self._log.warning("caller.not_allowed", name=", ".join(names_of(context)), reason=method)
                raise not_allowed(role)
            current_role.set(role)
        if role not in CONSOLES:
            return None
        access = await self._access.check(context, method)
        current_access.set(access)
        return access

    def _status_of(self, error: BaseException) -> tuple[grpc.StatusCode, str, _Metadata]:
        """Returns what to abort a call with. The abort must follow outside of the handler and without references to the
        call: gRPC keeps the exception in a reference cycle with the call, which would wait for the garbage
        collector."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if not isinstance(error, LegatoError | asyncio.CancelledError):
            self._log.failure("rpc.failed", error)
        forget_origin(error)
        if isinstance(error, asyncio.CancelledError):
            # Re-raised, it would leave the client waiting forever.
            return grpc.StatusCode.CANCELLED, "The call was cancelled.", ()
        refusal = error if isinstance(error, LegatoError) else internal_error()
        status = rpc_status.to_status(to_status(refusal))
        return status.code, status.details, (*status.trailing_metadata, *_pushback(refusal))


def _pushback(error: LegatoError) -> tuple[tuple[str, str], ...]:
    """Says when gRPC clients may repeat the call, or that they should not."""
    if error.retry_after_s is None:
        return ()
    is_soon = error.retry_after_s <= _LONGEST_PUSHBACK_S
    return (("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1000)) if is_soon else "-1"),)


async def _abort(context: Context, code: grpc.StatusCode, message: str, details: _Metadata) -> Never:
    """Ends a call with a status, and with the metadata that was set for it."""
    await context.abort(code, message, (*context.trailing_metadata(), *details))


async def _of_account(requests: AsyncIterator[Any], access: Access, method: str) -> AsyncIterator[Any]:
    """Passes on the requests of a stream. The first says whose it is; a later one may only repeat it."""
    is_first = True
    async for request in requests:
        if is_first or request.account_id:
            check_account(access, method, request)
        is_first = False
        yield request

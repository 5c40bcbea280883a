"""Stands before every RPC of a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_status import rpc_status

from services.chassis.errors import LegatoError, forget_origin, internal_error, to_status
from services.chassis.rpc.allowed_methods import may_call, names_of, not_allowed
from services.chassis.telemetry.log import Log


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Lets nobody ask for what is not theirs, and no exception out but as a status that says its reason."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is not None and handler.unary_unary is not None:
            return handler._replace(unary_unary=self._guard_call(handler.unary_unary, method))
        if handler is not None and handler.unary_stream is not None:
            # Health alone has one, which writes to its context and so looks like a call.
            return handler._replace(unary_stream=self._guard_call(handler.unary_stream, method))
        if handler is not None and handler.stream_stream is not None:
            return handler._replace(stream_stream=self._guard_stream(handler.stream_stream, method))
        return handler

    def _guard_call(self, behaviour: Any, method: str) -> Any:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                self._check(context, method)
                return await behaviour(request, context)
            except (Exception, asyncio.CancelledError) as error:
                told = self._told(error)
            del request
            return await context.abort(*told)

        return guarded

    def _guard_stream(self, behaviour: Any, method: str) -> Any:
        async def guarded(requests: Any, context: Any) -> AsyncIterator[Any]:
            response = None
            try:
                self._check(context, method)
                async with contextlib.aclosing(behaviour(requests, context)) as responses:
                    async for response in responses:
                        yield response
                return
            except (Exception, asyncio.CancelledError) as error:
                told = self._told(error)
            del response
            await context.abort(*told)

        return guarded

    def _check(self, context: Any, method: str) -> None:
        if not may_call(context, method):
            self._log.warning("caller.not_allowed", name=", ".join(names_of(context)), reason=method)
            raise not_allowed()

    def _told(self, error: BaseException) -> tuple[grpc.StatusCode, str, Any]:
        """What to abort a call with, once nothing is being handled any more and nothing of the call is at hand: gRPC
        keeps what it raises then in a circle with the call, and all that it knows would wait for the collector of
        garbage."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if not isinstance(error, LegatoError | asyncio.CancelledError):
            self._log.failure("rpc.failed", error)
        forget_origin(error)
        if isinstance(error, asyncio.CancelledError):
            # Let out, it would leave the client waiting for ever.
            return grpc.StatusCode.CANCELLED, "The call was cancelled.", ()
        status = rpc_status.to_status(to_status(error if isinstance(error, LegatoError) else internal_error()))
        return status.code, status.details, status.trailing_metadata

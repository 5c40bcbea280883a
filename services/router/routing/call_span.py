"""A trace span for each call to a model, as a child of the chat's span."""

import asyncio
from typing import Final

from protos.router.v1.router_pb2 import Finished
from services.chassis.telemetry.tracing import Span, current_span
from services.router.providers.base import ProviderError
from services.router.routing.routes import Target

OPERATION: Final = "chat"


def begin_span(target: Target, attempt: int, max_tokens: int) -> Span | None:
    """Starts the span of one call; returns None if the chat is not traced."""
    chat = current_span()
    if chat is None:
        return None
    span = chat.child(f"{OPERATION} {target.model_name}", is_client=True)
    span.attributes = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": target.provider,
        "gen_ai.request.model": target.model_name,
        "gen_ai.request.max_tokens": max_tokens,
        "legato.attempt": attempt,
    }
    return span


def end_span(span: Span | None, error: BaseException | None = None, finished: Finished | None = None) -> None:
    if span is None:
        return
    if isinstance(error, ProviderError):
        # The provider's HTTP status if it sent one.
        span.attributes["error.type"] = str(error.http_status or error.failure.value)
    elif isinstance(error, asyncio.CancelledError):
        span.attributes["error.type"] = "cancelled"
    elif error is not None:
        span.attributes["error.type"] = type(error).__name__
    if finished is not None:
        span.attributes["gen_ai.response.finish_reasons"] = [finished.finish_reason]
        span.attributes["gen_ai.usage.input_tokens"] = finished.usage.prompt_tokens
        span.attributes["gen_ai.usage.output_tokens"] = finished.usage.completion_tokens
    span.end()

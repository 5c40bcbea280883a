"""The span of one call to a model, in the trace of its chat."""

import asyncio
from typing import Final

from services.chassis.telemetry.tracing import Span, current_span
from services.router.answers.answer_end import NOT_RELAYED, AnswerEnd
from services.router.providers.base import ProviderError
from services.router.routes.target import Target

OPERATION: Final = "chat"


def begin_span(target: Target, number: int, max_tokens: int, provider_name: str) -> Span | None:
    """Starts the span of one call; returns None if the chat is not traced. `provider_name` is OpenTelemetry's."""
    chat = current_span()
    if chat is None:
        return None
    span = chat.child(f"{OPERATION} {target.model_name}", is_client=True)
    span.attributes.update(
        {
            "gen_ai.operation.name": OPERATION,
            "gen_ai.provider.name": provider_name,
            "gen_ai.request.model": target.model_name,
            "gen_ai.request.max_tokens": max_tokens,
            "legato.attempt": number,
            "legato.provider": target.provider,
        }
    )
    return span


def end_span(span: Span | None, error: BaseException | None, answer: AnswerEnd = NOT_RELAYED) -> None:
    """Ends the span of one call, if it has one."""
    if span is None:
        return
    if isinstance(error, ProviderError):
        # The provider's HTTP status if it sent one.
        span.attributes["error.type"] = str(error.http_status or error.failure.value)
    elif isinstance(error, asyncio.CancelledError):
        span.attributes["error.type"] = "cancelled"
    elif error is not None:
        span.attributes["error.type"] = type(error).__name__
    if (finished := answer.finished) is not None:
        span.attributes["gen_ai.response.finish_reasons"] = [finished.finish_reason]
        span.attributes["gen_ai.usage.input_tokens"] = finished.usage.prompt_tokens
        span.attributes["gen_ai.usage.output_tokens"] = finished.usage.completion_tokens
    if (believed := answer.believed) is not None:
        if believed.model_name:
            span.attributes["gen_ai.response.model"] = believed.model_name
        for name, tokens in (
            ("gen_ai.usage.cache_read.input_tokens", believed.cached_tokens),
            ("gen_ai.usage.cache_write.input_tokens", believed.cache_write_tokens),
            ("gen_ai.usage.reasoning.output_tokens", believed.reasoning_tokens),
        ):
            if tokens is not None:
                span.attributes[name] = tokens
    span.end()

"""The vendors' wires, each with what the tests of all of them need to know of it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Provider, Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.responses.provider import ResponsesProvider
from tests.services.router.providers.asking import opened
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.bedrock import API_KEY, BedrockUpstream, chunk, exception, reply_of
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.upstreams.responses import ResponsesReply, ResponsesUpstream


class Vendor(NamedTuple):
    name: str
    upstream: type[Upstream]
    reply: type[Reply]
    connect: Callable[[str, Timeouts], Provider]
    # How many events of a stream bring the first of its text, and not its end.
    events_to_text: int
    # Streams that begin with "Hello" and end badly, by what is bad about it.
    breaks: dict[str, Reply]
    # What is no answer in one piece.
    no_answers: tuple[str, ...]
    # Each of its reasons to stop, and the one of OpenAI's that it is.
    reasons: dict[str, str]


_OPENAI_BEGUN = '{"choices":[{"delta":{"content":"Hello"}}]}'
_ANTHROPIC_BEGUN = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}'
_ANTHROPIC_ERROR = '{"type":"error","error":{"type":"overloaded_error","message":"canary"}}'
_GEMINI_BEGUN = '{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}'
_GEMINI_ERROR = '{"error":{"code":503,"message":"canary","status":"X"}}'
_RESPONSES_BEGUN = '{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello"}'
_RESPONSES_ERROR = '{"type":"error","error":{"type":"too_many_requests","code":"too_many_requests","message":"canary"}}'
_RESPONSES_FAILED = '{"type":"response.failed","response":{"status":"failed","error":{"code":"x","message":"canary"}}}'
_RESPONSES_CANCELLED = '{"type":"response.cancelled","response":{"status":"cancelled","error":null}}'
# Deeper than anybody reads.
_DEEP = '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"

_BEDROCK_ROUTE = {
    "api_key": API_KEY,
    "key_header": "authorization",
    "platform": "bedrock",
    "version": "bedrock-2023-05-31",
}
_DAMAGED = chunk(b'{"type":"ping"}')[:-1] + b"\0"

VENDORS = (
    Vendor(
        "openai",
        Upstream,
        Reply,
        lambda address, timeouts: opened(OpenAIProvider, address, timeouts, api_key="secret"),
        events_to_text=3,
        breaks={
            "no finish reason": Reply(finish_reason=None),
            "no finish reason, no done": Reply(finish_reason=None, usage=None, done=False),
            "cut in the middle": Reply(cut_after=3, event_delay_s=0.01),
            "garbage": Reply(events=[_OPENAI_BEGUN, "<html>"]),
            "too deep": Reply(events=[_OPENAI_BEGUN, _DEEP]),
            "wrong types": Reply(events=[_OPENAI_BEGUN, '{"choices":7}']),
            "invalid UTF-8": Reply(writes=[f"data: {_OPENAI_BEGUN}\n\n", 'data: {"x":"\xff"}\n\n']),
            "error event": Reply(events=[_OPENAI_BEGUN, '{"error":{"message":"canary"}}']),
            "error event as a text": Reply(events=[_OPENAI_BEGUN, '{"error":"canary"}']),
        },
        no_answers=(
            "<html>",
            _DEEP,
            '{"choices":[]}',
            '{"choices":[{"finish_reason":"stop"}]}',
            '{"error":{"message":"canary"}}',
        ),
        reasons={"stop": "stop", "length": "length", "content_filter": "content_filter"},
    ),
    Vendor(
        "anthropic",
        AnthropicUpstream,
        AnthropicReply,
        lambda address, timeouts: opened(AnthropicProvider, address, timeouts, api_key="secret", version=VERSION_2026),
        events_to_text=4,
        breaks={
            "no stop reason": AnthropicReply(finish_reason=None),
            "no stop reason, no stop": AnthropicReply(finish_reason=None, done=False),
            "cut in the middle": AnthropicReply(cut_after=4, event_delay_s=0.01),
            "garbage": AnthropicReply(writes=[f"data: {_ANTHROPIC_BEGUN}\n\n", "data: <html>\n\n"]),
            "too deep": AnthropicReply(writes=[f"data: {_ANTHROPIC_BEGUN}\n\n", f"data: {_DEEP}\n\n"]),
            "error event": AnthropicReply(events=[_ANTHROPIC_BEGUN, _ANTHROPIC_ERROR]),
        },
        no_answers=("<html>", _DEEP, "{}", _ANTHROPIC_ERROR, '{"type":"message","content":[]}'),
        reasons={
            "end_turn": "stop",
            "stop_sequence": "stop",
            "pause_turn": "stop",
            "something_new": "stop",
            "max_tokens": "length",
            "model_context_window_exceeded": "length",
            "tool_use": "tool_calls",
            "refusal": "content_filter",
        },
    ),
    Vendor(
        "gemini",
        GeminiUpstream,
        GeminiReply,
        lambda address, timeouts: opened(GeminiProvider, address, timeouts, api_key="secret", version="v1"),
        events_to_text=2,
        breaks={
            "no reason": GeminiReply(finish_reason=None),
            "call that went wrong": GeminiReply(finish_reason="MALFORMED_FUNCTION_CALL"),
            "cut in the middle": GeminiReply(cut_after=2, event_delay_s=0.01),
            "garbage": GeminiReply(events=[_GEMINI_BEGUN, "<html>"]),
            "too deep": GeminiReply(events=[_GEMINI_BEGUN, _DEEP]),
            "error event": GeminiReply(events=[_GEMINI_BEGUN, _GEMINI_ERROR]),
            "error without data": GeminiReply(writes=[f"data: {_GEMINI_BEGUN}\r\n\r\n", _GEMINI_ERROR + "\r\n"]),
        },
        no_answers=("<html>", _DEEP, "{}", "[]", _GEMINI_ERROR, f"[{_GEMINI_ERROR}]"),
        reasons={
            "STOP": "stop",
            "MAX_TOKENS": "length",
            "CONTINUATION": "length",
            "SAFETY": "content_filter",
            "RECITATION": "content_filter",
            "PROHIBITED_CONTENT": "content_filter",
        },
    ),
    Vendor(
        "responses",
        ResponsesUpstream,
        ResponsesReply,
        lambda address, timeouts: opened(ResponsesProvider, address, timeouts, api_key="secret"),
        events_to_text=5,
        breaks={
            "no end": ResponsesReply(finish_reason=None),
            "cut in the middle": ResponsesReply(cut_after=5, event_delay_s=0.01),
            "garbage": ResponsesReply(writes=[f"data: {_RESPONSES_BEGUN}\n\n", "data: <html>\n\n"]),
            "too deep": ResponsesReply(writes=[f"data: {_RESPONSES_BEGUN}\n\n", f"data: {_DEEP}\n\n"]),
            "error event": ResponsesReply(events=[_RESPONSES_BEGUN, _RESPONSES_ERROR]),
            "response that failed": ResponsesReply(events=[_RESPONSES_BEGUN, _RESPONSES_FAILED]),
            "response that was cancelled": ResponsesReply(events=[_RESPONSES_BEGUN, _RESPONSES_CANCELLED]),
        },
        no_answers=(
            "<html>",
            _DEEP,
            "{}",
            '{"error":{"message":"canary"}}',
            '{"object":"response","status":"failed","error":{"code":"server_error","message":"canary"}}',
            '{"object":"response","status":"in_progress","output":[]}',
        ),
        reasons={"completed": "stop", "max_output_tokens": "length", "content_filter": "content_filter"},
    ),
    Vendor(
        "bedrock",
        BedrockUpstream,
        AnthropicReply,
        lambda address, timeouts: opened(AnthropicProvider, address, timeouts, **_BEDROCK_ROUTE),
        events_to_text=4,
        breaks={
            "no stop reason": AnthropicReply(finish_reason=None),
            "no stop reason, no stop": AnthropicReply(finish_reason=None, done=False),
            "cut in the middle": AnthropicReply(cut_after=4, event_delay_s=0.01),
            "garbage": reply_of([chunk(_ANTHROPIC_BEGUN.encode()), b"<html>this is no message</html>"]),
            "damaged": reply_of([chunk(_ANTHROPIC_BEGUN.encode()), _DAMAGED]),
            "cut in a message": reply_of([chunk(_ANTHROPIC_BEGUN.encode()), _DAMAGED[:30]]),
            "too deep": reply_of([chunk(_ANTHROPIC_BEGUN.encode()), chunk(_DEEP.encode())]),
            "exception": reply_of([chunk(_ANTHROPIC_BEGUN.encode()), exception("modelStreamErrorException", "canary")]),
        },
        no_answers=("<html>", _DEEP, "{}", '{"message":"canary"}', '{"type":"message","content":[]}'),
        reasons={"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"},
    ),
)

each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=[vendor.name for vendor in VENDORS])
each_break = pytest.mark.parametrize(
    ("vendor", "reply"),
    [
        pytest.param(vendor, reply, id=f"{vendor.name}, {what}")
        for vendor in VENDORS
        for what, reply in vendor.breaks.items()
    ],
)
each_no_answer = pytest.mark.parametrize(
    ("vendor", "body"), [pytest.param(vendor, body, id=vendor.name) for vendor in VENDORS for body in vendor.no_answers]
)
each_reason = pytest.mark.parametrize(
    ("vendor", "said", "told"),
    [
        pytest.param(vendor, *reason, id=f"{vendor.name}, {reason[0]}")
        for vendor in VENDORS
        for reason in vendor.reasons.items()
    ],
)

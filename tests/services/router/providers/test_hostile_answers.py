"""Answers that are too much of anything: each fails by itself, and costs no more than its size."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from services.router.answers.toolcalls import ToolCalls
from services.router.providers.answer import (
    LARGEST_PIECE_CHARACTERS,
    LONGEST_CALL_ID_CHARACTERS,
    LONGEST_NAME_CHARACTERS,
    MOST_TOOL_CALLS,
    ProviderAnswer,
)
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.base import Failure, Piece, ProviderError
from services.router.providers.errors.error_body import LARGEST_ERROR_BODY_BYTES, read_error_body
from services.router.providers.gemini.answer import ContentAnswer
from services.router.providers.openai.answer import CompletionAnswer
from services.router.providers.responses.answer import ResponseAnswer

EMPTY_LISTS = b"[" + b"[]," * 300_000 + b"[]]"

Call = Callable[[int], dict[str, Any]]


def openai_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}


def anthropic_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "content": calls, "stop_reason": "tool_use"}


def gemini_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": calls}, "finishReason": "STOP"}]}


def response_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "response", "status": "completed", "output": calls}


OPENAI, ANTHROPIC, GEMINI, RESPONSES = CompletionAnswer, MessageAnswer, ContentAnswer, ResponseAnswer
DIALECTS: dict[str, tuple[type[ProviderAnswer], Callable[[list[dict[str, Any]]], dict[str, Any]], Call]] = {
    "openai": (OPENAI, openai_calls, lambda n: {"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": ""}}),
    "without index": (OPENAI, openai_calls, lambda n: {"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}),
    "without id": (OPENAI, openai_calls, lambda n: {"function": {"name": "f", "arguments": {"a": n}}}),
    "anthropic": (ANTHROPIC, anthropic_calls, lambda n: {"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}}),
    "gemini": (GEMINI, gemini_calls, lambda n: {"functionCall": {"name": "f", "args": {"a": n}}}),
    "responses": (RESPONSES, response_calls, lambda n: {"type": "function_call", "call_id": f"c{n}", "name": "f"}),
}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def read_whole(answer: ProviderAnswer, body: bytes) -> list[Piece]:
    answer.begin_piece()
    answer.read_whole(body)
    answer.close()
    return list(answer.pieces)


def answer_of_calls(dialect: str, count: int) -> list[Piece]:
    kind, write, call = DIALECTS[dialect]
    return read_whole(kind(), json.dumps(write([call(number) for number in range(count)])).encode())


@each_dialect
def test_answer_of_ten_thousand_calls_is_a_failure_before_any_of_them_is_passed_on(dialect: str) -> None:
    with pytest.raises(ProviderError, match="too many tool calls"):
        answer_of_calls(dialect, 10_000)


@each_dialect
def test_answer_of_many_calls_is_none(dialect: str) -> None:
    calls = ToolCalls()
    deltas = [
        delta
        for piece in answer_of_calls(dialect, MOST_TOOL_CALLS)
        for fragment in piece.tool_calls
        if (delta := calls.add_fragment(fragment)) is not None
    ]
    assert len({delta.index for delta in deltas}) == len({delta.id for delta in deltas if delta.id}) == MOST_TOOL_CALLS


def test_long_call_that_is_named_in_each_of_its_pieces_is_one() -> None:
    answer = CompletionAnswer()
    answer.begin_piece()
    piece = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "x"}}
    event = json.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]}).encode()
    for _ in range(10 * MOST_TOOL_CALLS):
        answer.read_event(event)


@pytest.mark.parametrize(
    "field", [{"id": "x" * (LONGEST_CALL_ID_CHARACTERS + 1)}, {"name": "x" * (LONGEST_NAME_CHARACTERS + 1)}]
)
def test_call_with_an_endless_name_is_a_failure(field: dict[str, str]) -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}, **field}
    with pytest.raises(ProviderError, match="endless name"):
        read_whole(MessageAnswer(), json.dumps(anthropic_calls([call])).encode())


USAGES = {
    "openai": (
        CompletionAnswer,
        b'{"choices":[{"message":{"content":"Hi"}},%b],"usage":{"prompt_tokens":5,"completion_tokens":7,"x":%b}}',
    ),
    "anthropic": (
        MessageAnswer,
        (
            b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","x":%b,'
            b'"usage":{"input_tokens":5,"output_tokens":7,"x":%b}}'
        ),
    ),
    "gemini": (
        ContentAnswer,
        (
            b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"},%b],'
            b'"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":7,"x":%b}}'
        ),
    ),
    "responses": (
        ResponseAnswer,
        (
            b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]},%b],'
            b'"usage":{"input_tokens":5,"output_tokens":7,"x":%b}}'
        ),
    ),
}


@pytest.mark.parametrize("vendor", USAGES)
def test_nothing_is_made_of_what_stands_beside_counts_and_the_one_choice(vendor: str) -> None:
    kind, written = USAGES[vendor]
    has_one_choice = vendor in ("openai", "gemini")
    body = written % (b"{}," * 100_000 + b"{}" if has_one_choice else b"{}", EMPTY_LISTS)
    answer = kind()
    tracemalloc.start()
    try:
        [piece] = read_whole(answer, body)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert piece.usage is not None
    assert (piece.contents, piece.usage.prompt_tokens, piece.usage.completion_tokens) == (["Hi"], 5, 7)
    assert most_bytes < 4 * len(body)


def test_error_full_of_empty_lists_is_still_understood() -> None:
    body = b'{"error":{"code":"context_length_exceeded","message":"maximum context length","x":%b}}' % EMPTY_LISTS
    tracemalloc.start()
    try:
        with pytest.raises(ProviderError) as failure:
            read_whole(CompletionAnswer(), body)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failure.value.failure is Failure.CONTEXT
    assert most_bytes < 4 * len(body)


@pytest.mark.parametrize("said", [b'{"error":{"message":"Too long: %b"}}', b'{"error":"Too long: %b"}', b"[%b]"])
def test_large_complaint_is_known_by_the_text_of_its_beginning(said: bytes) -> None:
    whole = said % (b"x" * 4 * LARGEST_ERROR_BODY_BYTES)
    error_body = read_error_body(whole)
    assert error_body.message == whole[:LARGEST_ERROR_BODY_BYTES].decode().lower()
    assert not error_body.codes


MUCH = "word " * LARGEST_PIECE_CHARACTERS


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"content": MUCH}, lambda piece: "".join(piece.contents)),
        ({"refusal": MUCH}, lambda piece: "".join(piece.contents)),
        ({"reasoning": MUCH}, lambda piece: piece.hidden),
        (
            {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": MUCH}}]},
            lambda piece: "".join(call.arguments for call in piece.tool_calls),
        ),
    ],
    ids=["content", "refusal", "reasoning", "arguments"],
)
def test_long_text_becomes_pieces_of_a_bounded_size(message: dict[str, Any], what: Callable[[Piece], str]) -> None:
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    pieces = read_whole(CompletionAnswer(), body)
    assert "".join(map(what, pieces)) == MUCH
    assert max(len(what(piece)) for piece in pieces) <= LARGEST_PIECE_CHARACTERS
    assert not any(piece.is_empty for piece in pieces)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_long_arguments_are_those_of_one_call() -> None:
    calls = ToolCalls()
    call = {"function": {"name": "f", "arguments": MUCH}}
    pieces = read_whole(CompletionAnswer(), json.dumps(openai_calls([call, call])).encode())
    deltas = [delta for piece in pieces for call in piece.tool_calls if (delta := calls.add_fragment(call)) is not None]
    for index in range(2):
        assert "".join(delta.arguments for delta in deltas if delta.index == index) == MUCH

"""Parses Anthropic's answers: a message, whole or as events."""

import re
from contextlib import suppress

import msgspec
from msgspec import Raw

from services.router.providers.answer import NOTHING, ProviderAnswer, read_text_of_object, total
from services.router.providers.base import UNREADABLE, ProviderUsage
from services.router.providers.errors.classify import ErrorPattern, ErrorPatterns
from services.router.providers.matched_stop import MatchedStop
from services.router.schema.thoughts import RedactedBlock, ThinkingBlock
from services.router.schema.tools import ToolCallFragment

_FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

_ERROR_STATUSES = {
    "invalid_request_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    # Of Amazon's.
    "validationException": 400,
    "throttlingException": 429,
    "serviceUnavailableException": 503,
}


class _Event(msgspec.Struct, gc=False):
    """An event whose fields depend on its type; unknown types are ignored."""

    type: str = ""
    index: int = 0
    message: Raw = Raw()
    content_block: Raw = Raw()
    delta: Raw = Raw()
    usage: Raw = Raw()
    error: Raw = Raw()


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    # Of thoughts that only the vendor can read.
    data: str | None = None
    id: str | None = None
    name: str | None = None
    # An object, in a tool call.
    input: Raw = Raw()
    # Of a text.
    citations: Raw = Raw()


class _Stopped(msgspec.Struct, gc=False):
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Raw = Raw()


class _Citation(msgspec.Struct, gc=False):
    """A page that a block of text cites, with its address, or a result that was sent, with its source. Those of
    documents have neither."""

    title: str | None = None
    url: str | None = None
    source: str | None = None


class _Whole(_Stopped, gc=False):
    type: str = ""
    content: list[_Block] = []
    usage: Raw = Raw()
    error: Raw = Raw()


class _Error(msgspec.Struct, gc=False):
    type: str = ""


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Raw = Raw()
    cache_read_input_tokens: Raw = Raw()
    cache_creation_input_tokens: Raw = Raw()
    # An object, with the same by the time that it is kept.
    cache_creation: Raw = Raw()
    output_tokens: Raw = Raw()
    # An object, with those of thinking.
    output_tokens_details: Raw = Raw()


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: Raw = Raw()


class _OutputTokens(msgspec.Struct, gc=False):
    thinking_tokens: Raw = Raw()


_events = msgspec.json.Decoder(_Event)
_blocks_of_events = msgspec.json.Decoder(_Block)
_deltas = msgspec.json.Decoder(_Delta)
_stopped = msgspec.json.Decoder(_Stopped)
_wholes = msgspec.json.Decoder(_Whole)
_errors = msgspec.json.Decoder(_Error)
_usages = msgspec.json.Decoder(_Usage)
_cache_creations = msgspec.json.Decoder(_CacheCreation)
_output_tokens = msgspec.json.Decoder(_OutputTokens)
_citations = msgspec.json.Decoder(_Citation)
_citation_lists = msgspec.json.Decoder(list[_Citation] | None)


_TOO_LONG = re.compile(r"^[^\"']*(prompt is too long|exceed context limit|input is too long)")


class MessageAnswer(ProviderAnswer):
    format_name = "a message"
    # Most of these errors have no code, only a message.
    error_patterns = ErrorPatterns(
        context=ErrorPattern(frozenset(), _TOO_LONG),
        account=ErrorPattern(
            frozenset(("billing_error", "enforced_spend_limit_reached")),
            re.compile(r"^(your credit balance|you have reached your specified|(?:[^\"'`:]|\b'\b)*\bspend limit)"),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        # Initial arguments by block index of each open tool call. None: they come in pieces.
        self._begun: dict[int, str | None] = {}
        # The texts and signatures of thoughts that are being written, by block index, if they are gathered.
        self._thinking: dict[int, tuple[list[str], list[str]]] = {}
        self._text_characters = 0
        # Where blocks of text begin, and what they cite, by their index.
        self._cited: dict[int, tuple[int, list[_Citation]]] = {}

    def _read_whole(self, body: bytes) -> None:
        whole = _wholes.decode(body)
        if whole.type != "message":
            raise self._failure(whole.error)
        for index, block in enumerate(whole.content):
            self._begin_block(index, block)
            self._end_block(index)
        self.think("".join(block.thinking or "" for block in whole.content))
        self._add_usage(whole.usage)
        self._stop(whole)
        if self.is_traced:
            self._note_model(body)

    def _read_event(self, data: bytes) -> None:
        event = _events.decode(data)
        if event.type == "content_block_delta":
            self._add(event.index, _deltas.decode(event.delta))
        elif event.type == "content_block_start":
            block = _blocks_of_events.decode(event.content_block)
            self._begin_block(event.index, block)
            self.think(block.thinking or "")
        elif event.type == "content_block_stop":
            self._end_block(event.index)
        elif event.type == "message_start":
            self._add_usage(_wholes.decode(event.message).usage)
            if self.is_traced:
                self._note_model(event.message)
        elif event.type == "message_delta":
            self._add_usage(event.usage)
            self._stop(_stopped.decode(event.delta))
        elif event.type == "message_stop":
            self.is_over = True
        elif event.type == "error":
            raise self._failure(event.error)

    def _begin_block(self, index: int, block: _Block) -> None:
        if block.type == "text":
            self._cited[index] = self._text_characters, []
            if block.citations not in NOTHING:
                with suppress(*UNREADABLE):
                    self._cited[index][1].extend(_citation_lists.decode(block.citations) or ())
        if block.text:
            self._add_text(block.text)
        if self.thoughts is not None and block.type == "thinking":
            self._thinking[index] = [block.thinking or ""], [block.signature or ""]
        elif self.thoughts is not None and block.type == "redacted_thinking":
            self.thoughts.add(RedactedBlock(block.data or "", self._text_characters))
        if block.type == "tool_use":
            self._begun[index] = read_text_of_object(block.input)
            self.call(ToolCallFragment(index, block.id, block.name, ""))

    def _add(self, index: int, delta: _Delta) -> None:
        if delta.text:
            self._add_text(delta.text)
        elif delta.thinking:
            self.think(delta.thinking)
            if index in self._thinking:
                self._thinking[index][0].append(delta.thinking)
        elif delta.signature:
            if index in self._thinking:
                self._thinking[index][1].append(delta.signature)
        elif delta.citation not in NOTHING:
            if index in self._cited:
                with suppress(*UNREADABLE):
                    self._cited[index][1].append(_citations.decode(delta.citation))
        elif delta.partial_json and index in self._begun:
            # Blocks of other types, such as Anthropic's own tools, are ignored.
            self._begun[index] = None
            self.call(ToolCallFragment(index, arguments=delta.partial_json))

    def _add_text(self, text: str) -> None:
        self._text_characters += len(text)
        self.add_texts(text)

    def _end_block(self, index: int) -> None:
        if self.thoughts is not None and index in self._thinking:
            texts, signatures = self._thinking.pop(index)
            block = ThinkingBlock("".join(texts), "".join(signatures), self._text_characters)
            self.thoughts.add(block)
        begin, cited = self._cited.pop(index, (0, ()))
        for citation in cited:
            self.cite(begin, self._text_characters, citation.title, citation.url or citation.source)
        # A call without parameters has no input deltas; OpenAI's clients expect an object.
        arguments = self._begun.pop(index, None)
        if arguments is not None:
            self.call(ToolCallFragment(index, arguments=arguments))

    def _stop(self, stopped: _Stopped) -> None:
        if stopped.stop_reason == "stop_sequence" and stopped.stop_sequence:
            self.finish(MatchedStop(stopped.stop_sequence))
        elif stopped.stop_reason:
            self.finish(_FINISH_REASONS.get(stopped.stop_reason, "stop"))

    def _add_usage(self, usage: Raw) -> None:
        get = self._count(usage, _usages).get
        with suppress(*UNREADABLE):
            reported = _usages.decode(usage)
            self._count(reported.cache_creation, _cache_creations)
            self._count(reported.output_tokens_details, _output_tokens)
        cached_tokens, written_tokens = get("cache_read_input_tokens"), get("cache_creation_input_tokens")
        self.usage = ProviderUsage(
            total(get("input_tokens"), cached_tokens, written_tokens),
            get("output_tokens"),
            cached_tokens,
            written_tokens,
            get("ephemeral_1h_input_tokens"),
            get("thinking_tokens"),
        )

    def _status_of(self, error: Raw | bytes) -> int:
        try:
            return _ERROR_STATUSES.get(_errors.decode(error).type, 500)
        except UNREADABLE:
            return 500

"""Parses answers of servers compatible with OpenAI's chat completions, as far as the router needs them.

Dialects differ: every field may be missing or null, and unknown fields are ignored.
"""

import re
from contextlib import suppress

import msgspec
from msgspec import Raw

from services.router.compiled import read_texts
from services.router.providers import base as counts
from services.router.providers.base import (
    UNREADABLE,
    ProviderAnswer,
    ProviderError,
    ProviderUsage,
    UnreadableAnswer,
    read_text_of_object,
)
from services.router.providers.errors.classify import ErrorPattern, ErrorPatterns, read_failure_in_answer
from services.router.schema.tools import ToolCallFragment

# OpenAI and llama.cpp have codes for a prompt that is too long; the others have messages. An empty account has a code,
# unless an intermediary forwards only OpenAI's message.
SIGNS = ErrorPatterns(
    context=ErrorPattern(
        frozenset(("context_length_exceeded", "exceed_context_size_error")),
        re.compile(
            r"maximum context length|model's context length is only|maximum prompt length is"
            r"|exceeds the available context size"
            r"|longer than the model's context length"
            r"|longer than the maximum model length of"
            r"|tokens \+ `max_new_tokens` must be"
        ),
    ),
    account=ErrorPattern(
        frozenset(("insufficient_quota", "credit_balance_exhausted")),
        re.compile(r"^[^\"'`]*you exceeded your current quota"),
    ),
)

_DONE = b"[DONE]"

# A missing or null field. Missing is a singleton, which makes the comparison fast.
_ABSENT = Raw()
_NOTHING = (_ABSENT, Raw(b"null"))


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    # A string or an object.
    arguments: Raw = _ABSENT


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    # Mistral has its reasoning among the parts.
    thinking: "list[_Part] | None" = None


class _Message(msgspec.Struct, gc=False):
    """A whole message, or one delta of it."""

    content: str | list[_Part] | None = None
    refusal: str | None = None
    # Two names for the reasoning.
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    # Moonshot's place for usage.
    usage: Raw = _ABSENT


class _Groq(msgspec.Struct, gc=False):
    usage: Raw = _ABSENT
    error: Raw = _ABSENT


class _Choices(msgspec.Struct, gc=False, array_like=True):
    """The list of choices; only the first is decoded, since one was requested."""

    first: _Choice | None = None


class _Completion(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole completion."""

    object: str | None = None
    choices: _Choices | None = None
    usage: Raw = _ABSENT
    # Any value but null is an error, whatever the status.
    error: Raw = _ABSENT
    x_groq: _Groq | None = None


class _Error(msgspec.Struct, gc=False):
    code: int


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Raw = _ABSENT
    completion_tokens: Raw = _ABSENT
    prompt_tokens_details: Raw = _ABSENT
    # DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Raw = _ABSENT


class _PromptTokensDetails(msgspec.Struct, gc=False):
    cached_tokens: Raw = _ABSENT


_completions = msgspec.json.Decoder(_Completion)
_errors = msgspec.json.Decoder(_Error)
_usages = msgspec.json.Decoder(_Usage)
_prompt_details = msgspec.json.Decoder(_PromptTokensDetails)
_texts = msgspec.json.Decoder(str)


class CompletionAnswer(ProviderAnswer):
    has_plain_reads = True

    def read_texts(self, events: list[bytes], at: int, until: int) -> int:
        texts = read_texts(events, at, until)
        if texts:
            self.add_texts(texts)
        return len(texts)

    def read_event(self, data: bytes) -> None:
        if data == _DONE:
            self.is_over = True
            return
        try:
            completion = _completions.decode(data)
        except UNREADABLE:
            raise _not_a_completion() from None
        choice = completion.choices.first if completion.choices is not None else None
        if (
            choice is None
            or choice.usage is not _ABSENT
            or completion.usage is not _ABSENT
            or completion.error is not _ABSENT
            or completion.x_groq is not None
            or completion.object == "error"
        ):
            # Hardly any event has an error, or the usage.
            self._read_error_or_usage(completion, data)
            if choice is None:
                return
        message = choice.delta or choice.message
        if message is not None:
            content = message.content
            is_only_content = not (
                message.refusal or message.reasoning_content or message.reasoning or message.tool_calls
            )
            if type(content) is str and content and is_only_content:
                self.add_text(content)
            else:
                self._read(message)
        if choice.finish_reason:
            self.finish(choice.finish_reason)

    def read_whole(self, body: bytes) -> None:
        try:
            completion = _completions.decode(body)
        except UNREADABLE:
            raise _not_a_completion() from None
        self._read_error_or_usage(completion, body)
        choice = completion.choices.first if completion.choices is not None else None
        if choice is None or choice.message is None:
            raise ProviderError("sent an answer without a message")
        self._read(choice.message)
        # Some servers omit the reason; a whole answer is complete without it.
        self.finish(choice.finish_reason or "stop")

    def _read_error_or_usage(self, completion: _Completion, data: bytes) -> None:
        error = completion.error
        if error in _NOTHING and completion.x_groq is not None:
            error = completion.x_groq.error
        if error not in _NOTHING or completion.object == "error":
            raise _failure(data if error in _NOTHING else error)
        self._count(completion)

    def _read(self, message: _Message) -> None:
        # Decodes what may be unreadable first, before anything is taken from the message.
        calls = [_read_call(call) for call in message.tool_calls] if message.tool_calls else ()
        if message.content:
            if isinstance(message.content, str):
                self.add_text(message.content)
            else:
                self._read_parts(message.content)
        if message.refusal:
            self.refuse(message.refusal)
        hidden = message.reasoning_content or message.reasoning
        if hidden:
            self.think(hidden)
        for call in calls:
            self.call(call)

    def _read_parts(self, parts: list[_Part]) -> None:
        for part in parts:
            if part.text:
                self.add_text(part.text)
        thoughts = [thought.text or "" for part in parts for thought in part.thinking or ()]
        if thoughts:
            self.think("".join(thoughts))

    def _count(self, completion: _Completion) -> None:
        """Updates the usage, which may appear in several places and repeatedly; the last value counts."""
        usage = completion.usage
        if usage in _NOTHING and completion.x_groq is not None:
            usage = completion.x_groq.usage
        choices = completion.choices
        if usage in _NOTHING and choices is not None and choices.first is not None:
            usage = choices.first.usage
        if usage not in _NOTHING:
            self.usage = _latest(_read_usage(usage), self.usage)


def _read_call(call: _ToolCall) -> ToolCallFragment:
    function = call.function or _Function()
    return ToolCallFragment(call.index, call.id, function.name, _read_arguments(function.arguments))


def _read_arguments(said: Raw) -> str | None:
    if said in _NOTHING:
        return None
    try:
        return _texts.decode(said) if bytes(said).startswith(b'"') else read_text_of_object(said)
    except UNREADABLE:
        raise _not_a_completion() from None


def _not_a_completion() -> UnreadableAnswer:
    return UnreadableAnswer("sent something that is not a chat completion")


def _read_usage(usage_json: Raw) -> ProviderUsage | None:
    try:
        usage = _usages.decode(usage_json)
    except UNREADABLE:
        return None
    cached = usage.prompt_cache_hit_tokens
    if usage.prompt_tokens_details is not _ABSENT:
        with suppress(*UNREADABLE):
            told = _prompt_details.decode(usage.prompt_tokens_details).cached_tokens
            cached = cached if told in _NOTHING else told
    return ProviderUsage(
        counts.read_count(usage.prompt_tokens), counts.read_count(usage.completion_tokens), counts.read_count(cached)
    )


def _latest(usage: ProviderUsage | None, before: ProviderUsage | None) -> ProviderUsage | None:
    if usage is None or before is None:
        return usage or before
    return ProviderUsage(
        before.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
        before.completion_tokens if usage.completion_tokens is None else usage.completion_tokens,
        before.cached_tokens if usage.cached_tokens is None else usage.cached_tokens,
    )


def _failure(error: Raw | bytes) -> ProviderError:
    try:
        # Most servers put the HTTP status in `code`; OpenAI has a string.
        status = _errors.decode(error).code
    except UNREADABLE:
        status = 500
    return read_failure_in_answer(status, bytes(error), SIGNS)

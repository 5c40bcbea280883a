"""Parses answers of servers compatible with OpenAI's chat completions, as far as the router needs them.

Dialects differ: every field may be missing or null, and unknown fields are ignored.
"""

import re
from contextlib import suppress

import msgspec
from msgspec import Raw

from services.router.providers.answer import ABSENT, NOTHING, ProviderAnswer, read_text_of_object
from services.router.providers.base import UNREADABLE, ProviderError, ProviderUsage
from services.router.providers.errors.classify import ErrorPattern, ErrorPatterns
from services.router.providers.matched_stop import finish_reason_of
from services.router.providers.openai.custom_tools import CustomInputs
from services.router.schema.thoughts import CallSignature
from services.router.schema.tools import ToolCallFragment
from services.rules.custom_tools import to_arguments

_DONE = b"[DONE]"
_URL_CITATION = "url_citation"


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    # A string or an object.
    arguments: Raw = ABSENT


class _Custom(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    # In place of a function: a custom tool.
    custom: _Custom | None = None
    # Google's, with the signature of the call.
    extra_content: Raw = ABSENT


class _Signed(msgspec.Struct, gc=False):
    thought_signature: str = ""


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
    # OpenRouter's, beside the text.
    reasoning_details: Raw = ABSENT
    tool_calls: list[_ToolCall] | None = None
    # Those of servers that search.
    annotations: Raw = ABSENT


class _UrlCitation(msgspec.Struct, gc=False):
    start_index: int = 0
    end_index: int = 0
    title: str | None = None
    url: str | None = None


class _Annotation(_UrlCitation, gc=False):
    """An annotation, whose fields are in an object, or beside its type as in Responses."""

    type: str = ""
    url_citation: _UrlCitation | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    # Which stop was met, by vLLM and by SGLang.
    stop_reason: Raw = ABSENT
    matched_stop: Raw = ABSENT
    # Moonshot's place for usage.
    usage: Raw = ABSENT


class _Groq(msgspec.Struct, gc=False):
    usage: Raw = ABSENT
    error: Raw = ABSENT


class _Choices(msgspec.Struct, gc=False, array_like=True):
    """The list of choices; only the first is decoded, since one was requested."""

    first: _Choice | None = None


class _Completion(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole completion."""

    object: str | None = None
    choices: _Choices | None = None
    usage: Raw = ABSENT
    # Any value but null is an error, whatever the status.
    error: Raw = ABSENT
    x_groq: _Groq | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Raw = ABSENT
    completion_tokens: Raw = ABSENT
    # DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Raw = ABSENT
    # SGLang's place for it.
    reasoning_tokens: Raw = ABSENT
    # Objects, with OpenAI's.
    prompt_tokens_details: Raw = ABSENT
    completion_tokens_details: Raw = ABSENT


class _PromptTokens(msgspec.Struct, gc=False):
    cached_tokens: Raw = ABSENT
    cache_write_tokens: Raw = ABSENT
    # LiteLLM's name for it, and Alibaba's.
    cache_creation_tokens: Raw = ABSENT
    cache_creation_input_tokens: Raw = ABSENT


class _AnswerTokens(msgspec.Struct, gc=False):
    reasoning_tokens: Raw = ABSENT


_completions = msgspec.json.Decoder(_Completion)
_usages = msgspec.json.Decoder(_Usage)
_prompt_tokens = msgspec.json.Decoder(_PromptTokens)
_answer_tokens = msgspec.json.Decoder(_AnswerTokens)
_texts = msgspec.json.Decoder(str)
_detail_lists = msgspec.json.Decoder(list[Raw] | None)
_signatures = msgspec.json.Decoder(dict[str, _Signed])
_annotation_lists = msgspec.json.Decoder(list[_Annotation] | None)


class CompletionAnswer(ProviderAnswer):
    format_name = "a chat completion"
    has_plain_reads = True
    # OpenAI and llama.cpp have codes for a prompt that is too long; the others have messages. An empty account has a
    # code, unless an intermediary forwards only OpenAI's message.
    error_patterns = ErrorPatterns(
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

    def __init__(self) -> None:
        super().__init__()
        self._custom = CustomInputs()

    def finish(self, reason: str) -> None:
        self._end_inputs()
        super().finish(reason)

    def _read_event(self, data: bytes) -> None:
        if data == _DONE:
            self.is_over = True
            return
        completion = _completions.decode(data)
        choice = completion.choices.first if completion.choices is not None else None
        if (
            choice is None
            or choice.usage is not ABSENT
            or completion.usage is not ABSENT
            or completion.error is not ABSENT
            or completion.x_groq is not None
            or completion.object == "error"
        ):
            # Hardly any event has an error, or the usage.
            self._read_error_or_usage(completion, data)
            if choice is None:
                return
        message = choice.delta or choice.message
        if message is not None:
            self._read(message)
        if choice.finish_reason:
            self.finish(finish_reason_of(choice.finish_reason, choice.stop_reason, choice.matched_stop))

    def _read_whole(self, body: bytes) -> None:
        completion = _completions.decode(body)
        self._read_error_or_usage(completion, body)
        choice = completion.choices.first if completion.choices is not None else None
        if choice is None or choice.message is None:
            raise ProviderError("sent an answer without a message")
        self._read(choice.message)
        # Some servers omit the reason; a whole answer is complete without it.
        self.finish(finish_reason_of(choice.finish_reason or "stop", choice.stop_reason, choice.matched_stop))

    def _read_error_or_usage(self, completion: _Completion, data: bytes) -> None:
        error = completion.error
        if error in NOTHING and completion.x_groq is not None:
            error = completion.x_groq.error
        if error not in NOTHING or completion.object == "error":
            raise self._failure(data if error in NOTHING else error)
        self._add_usage(completion)
        if self.is_traced:
            self._note_model(data)

    def _read(self, message: _Message) -> None:
        # Decodes what may be unreadable first, before anything is taken from the message.
        calls = [self._read_call(call) for call in message.tool_calls] if message.tool_calls else ()
        if message.content:
            if isinstance(message.content, str):
                self.add_texts(message.content)
            else:
                self._read_parts(message.content)
        if message.refusal:
            self.refuse(message.refusal)
        if reasoning := message.reasoning_content or message.reasoning:
            self.think(reasoning)
            if self.thoughts is not None:
                self.thoughts.add_text(reasoning, "reasoning_content" if message.reasoning_content else "reasoning")
        if self.thoughts is not None and message.reasoning_details is not ABSENT:
            self._read_details(message.reasoning_details)
        for call in calls:
            self.call(call)
        if message.annotations is not ABSENT:
            self._read_annotations(message.annotations)

    def _read_call(self, call: _ToolCall) -> ToolCallFragment:
        if call.custom is None:
            return _read_call(call)
        if call.index is None:
            return ToolCallFragment(None, call.id, call.custom.name, to_arguments(call.custom.input or ""))
        if call.custom.name:
            self._end_inputs()
        arguments = self._custom.write(call.index, call.custom.input or "")
        return ToolCallFragment(call.index, call.id, call.custom.name, arguments)

    def _end_inputs(self) -> None:
        for index, end in self._custom.end():
            self.call(ToolCallFragment(index, arguments=end))

    def _read_annotations(self, annotations: Raw) -> None:
        with suppress(*UNREADABLE):
            for annotation in _annotation_lists.decode(annotations) or ():
                if annotation.type == _URL_CITATION:
                    cited = annotation.url_citation or annotation
                    self.cite(cited.start_index, cited.end_index, cited.title, cited.url)

    def _read_details(self, details: Raw) -> None:
        if self.thoughts is not None:
            with suppress(*UNREADABLE):
                self.thoughts.add_details(_detail_lists.decode(details) or ())

    def _read_parts(self, parts: list[_Part]) -> None:
        for part in parts:
            if part.text:
                self.add_texts(part.text)
        self.think("".join(thought.text or "" for part in parts for thought in part.thinking or ()))

    def _add_usage(self, completion: _Completion) -> None:
        """Updates the usage, which may appear in several places and repeatedly; the last value counts."""
        usage = completion.usage
        if usage in NOTHING and completion.x_groq is not None:
            usage = completion.x_groq.usage
        choices = completion.choices
        if usage in NOTHING and choices is not None and choices.first is not None:
            usage = choices.first.usage
        if usage in NOTHING:
            return
        get = self._count(usage, _usages).get
        with suppress(*UNREADABLE):
            told = _usages.decode(usage)
            if told.prompt_tokens_details is not ABSENT:
                self._count(told.prompt_tokens_details, _prompt_tokens)
            if told.completion_tokens_details is not ABSENT:
                self._count(told.completion_tokens_details, _answer_tokens)
        cached_tokens = get("cached_tokens", get("prompt_cache_hit_tokens"))
        if not self._counted:
            return
        self.usage = ProviderUsage(
            get("prompt_tokens"),
            get("completion_tokens"),
            cached_tokens,
            get("cache_write_tokens", get("cache_creation_tokens", get("cache_creation_input_tokens"))),
            reasoning_tokens=get("reasoning_tokens"),
        )


def _read_call(call: _ToolCall) -> ToolCallFragment:
    function = call.function or _Function()
    arguments = _read_arguments(function.arguments)
    thoughts = () if call.extra_content is ABSENT else _read_signatures(call.extra_content)
    return ToolCallFragment(call.index, call.id, function.name, arguments, thoughts)


def _read_signatures(extra_content: Raw) -> tuple[CallSignature, ...]:
    """Returns the signature that Google's OpenAI-compatible API gives a call."""
    try:
        signed = _signatures.decode(extra_content)
    except UNREADABLE:
        return ()
    return tuple(CallSignature(each.thought_signature, name) for name, each in signed.items() if each.thought_signature)


def _read_arguments(said: Raw) -> str | None:
    if said in NOTHING:
        return None
    return _texts.decode(said) if bytes(said).startswith(b'"') else read_text_of_object(said)

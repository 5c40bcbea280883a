"""Parses Gemini's answers: a response, or a stream of responses, each with new content."""

import re

import msgspec
from msgspec import Raw

from services.router.providers.answer import NOTHING, ProviderAnswer, read_text_of_object, total
from services.router.providers.base import ProviderError, ProviderUsage
from services.router.providers.errors.classify import ErrorPattern, ErrorPatterns
from services.router.schema.thoughts import CallSignature
from services.router.schema.tools import ToolCallFragment

_FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # The model could continue if asked again, which is left to the client.
    "CONTINUATION": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"),
        "content_filter",
    ),
}


class _FunctionCall(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    # An object.
    args: Raw = Raw()


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _FunctionCall | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    # What the answer cites, if the model has a tool of Google's own.
    grounding_metadata: Raw = Raw()


class _Candidates(msgspec.Struct, gc=False, array_like=True):
    """The list of candidates; only the first is decoded, since one was requested."""

    first: _Candidate | None = None


class _PromptFeedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Response(msgspec.Struct, gc=False, rename="camel"):
    candidates: _Candidates | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: Raw = Raw()
    error: Raw = Raw()


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: Raw = Raw()
    tool_use_prompt_token_count: Raw = Raw()
    candidates_token_count: Raw = Raw()
    thoughts_token_count: Raw = Raw()
    cached_content_token_count: Raw = Raw()


_responses = msgspec.json.Decoder(_Response)
_lists_of_responses = msgspec.json.Decoder(list[_Response])
_usages = msgspec.json.Decoder(_Usage)


class ContentAnswer(ProviderAnswer):
    format_name = "generated content"
    # One status means a wrong key or a wrong field, and another means spent credit or a rate limit.
    error_patterns = ErrorPatterns(
        context=ErrorPattern(frozenset(), re.compile(r"^[^\"'`:]*input token count")),
        account=ErrorPattern(
            frozenset(("api_key_invalid", "failed_precondition")),
            re.compile(
                r"^(api key|billing|you exceeded your current quota|your (api key|billing|credit|prepa|project))"
            ),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def _read_event(self, data: bytes) -> None:
        # An error may come as the only item of a list.
        for response in _lists_of_responses.decode(data) if data.startswith(b"[") else [_responses.decode(data)]:
            self._read(response)
        if self.is_traced:
            self._note_model(data)

    def _read_whole(self, body: bytes) -> None:
        self._read_event(body.lstrip())

    def _read(self, response: _Response) -> None:
        if response.error not in NOTHING:
            raise self._failure(response.error)
        self._add_usage(response.usage_metadata)
        candidate = response.candidates.first if response.candidates is not None else None
        if candidate is None:
            if response.prompt_feedback is not None and response.prompt_feedback.block_reason:
                self.finish("content_filter")
            return
        parts = (candidate.content.parts if candidate.content is not None else None) or []
        for part in parts:
            self._read_part(part)
        self.think("".join(part.text for part in parts if part.thought and part.text))
        self._read_grounding(candidate.grounding_metadata)
        if candidate.finish_reason:
            if candidate.finish_reason not in _FINISH_REASONS:
                # A malformed call, an unknown tool, or an unknown reason.
                raise ProviderError("failed in the middle of its answer")
            self.finish(_FINISH_REASONS[candidate.finish_reason])

    def _read_grounding(self, grounding: Raw) -> None:
        """Reads what the answer cites."""

    def _read_part(self, part: _Part) -> None:
        if part.text and not part.thought:
            self.add_texts(part.text)
        call = part.function_call
        if call is not None:
            # A call is sent whole; it is identified by its position, since its id is optional.
            arguments = "{}" if call.args in NOTHING else read_text_of_object(call.args)
            thoughts = (CallSignature(part.thought_signature),) if part.thought_signature else ()
            self.call(ToolCallFragment(self._calls, call.id, call.name, arguments, thoughts))
            self._calls += 1

    def _add_usage(self, usage: Raw) -> None:
        get = self._count(usage, _usages).get
        if not self._counted:
            return
        # Reasoning tokens are not included in the candidates' count.
        text_tokens, thought_tokens = get("candidates_token_count"), get("thoughts_token_count")
        self.usage = ProviderUsage(
            total(get("prompt_token_count"), get("tool_use_prompt_token_count")),
            total(text_tokens, thought_tokens) if text_tokens is not None else thought_tokens,
            get("cached_content_token_count"),
            reasoning_tokens=thought_tokens,
        )

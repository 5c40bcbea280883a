"""What Gemini answers: a response, or a stream of responses, each with what is new."""

import re
from typing import Any

import msgspec
from msgspec import Raw

from services.router.providers import counts
from services.router.providers.answer import UNREADABLE, Answer, Nonsense
from services.router.providers.base import ProviderError, ProviderUsage
from services.router.providers.failures import Sign, Signs, read_failure_in_answer
from services.router.toolcalls import ToolCallFragment

# It has one status for a key and a field that are wrong, and one for credit and a minute's requests that are spent.
SIGNS = Signs(
    context=Sign(frozenset(), re.compile(r"^[^\"'`:]*input token count")),
    account=Sign(
        frozenset(("api_key_invalid", "failed_precondition")),
        re.compile(r"^(api key|billing|you exceeded your current quota|your (api key|billing|credit|prepa|project))"),
    ),
)

_FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # It could go on if it was asked again; whoever wants that asks us.
    "CONTINUATION": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"),
        "content_filter",
    ),
}

_NOTHING = (Raw(), Raw(b"null"))


class _FunctionCall(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    args: dict[str, Raw] | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _PromptFeedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Response(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: Raw = Raw()
    error: Raw = Raw()


class _Error(msgspec.Struct, gc=False):
    code: int = 500


_responses = msgspec.json.Decoder(_Response)
_lists_of_responses = msgspec.json.Decoder(list[_Response])
_errors = msgspec.json.Decoder(_Error)


class ContentAnswer(Answer):
    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[str, Any] = {}
        self._calls = 0

    def read_event(self, data: bytes) -> None:
        try:
            # An error may come as the only item of a list.
            responses = _lists_of_responses.decode(data) if data.startswith(b"[") else [_responses.decode(data)]
        except UNREADABLE:
            raise Nonsense("sent something that is not generated content") from None
        for response in responses:
            self._read(response)

    def read_whole(self, body: bytes) -> None:
        self.read_event(body.lstrip())

    def _read(self, response: _Response) -> None:
        if response.error not in _NOTHING:
            raise _failure(response.error)
        self._count(response.usage_metadata)
        if not response.candidates:
            if response.prompt_feedback is not None and response.prompt_feedback.block_reason:
                self.finish("content_filter")
            return
        candidate = response.candidates[0]
        parts = candidate.content.parts if candidate.content is not None else None
        for part in parts or ():
            self._read_part(part)
        if candidate.finish_reason:
            self._finish(candidate.finish_reason)

    def _read_part(self, part: _Part) -> None:
        if part.text:
            if part.thought:
                self.think(part.text)
            else:
                self.say(part.text)
        call = part.function_call
        if call is not None:
            # A call comes whole; it is told from others by its place, since it need not have an id.
            self.call(ToolCallFragment(self._calls, call.id, call.name, call.args or {}))
            self._calls += 1

    def _finish(self, reason: str) -> None:
        if reason not in _FINISH_REASONS:
            # A call that is none, a tool that is not there, or something that nobody has heard of yet.
            raise ProviderError("failed in the middle of its answer")
        self.finish(_FINISH_REASONS[reason])

    def _count(self, usage: Raw) -> None:
        """Counts are of all so far: a later one takes the place of an earlier one."""
        for name, said in counts.read_object(usage).items():
            count = counts.as_count(said)
            if count is not None:
                self._counted[name] = count
        if not self._counted:
            return
        get = self._counted.get
        # What it thought is not among what it said.
        said_tokens, thought_tokens = get("candidatesTokenCount"), get("thoughtsTokenCount")
        self.usage = ProviderUsage(
            counts.total(get("promptTokenCount"), get("toolUsePromptTokenCount")),
            counts.total(said_tokens, thought_tokens) if said_tokens is not None else thought_tokens,
            get("cachedContentTokenCount"),
        )


def _failure(error: Raw) -> ProviderError:
    try:
        status = _errors.decode(error).code
    except UNREADABLE:
        status = 500
    return read_failure_in_answer(status, bytes(error), SIGNS)

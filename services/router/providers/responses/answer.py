"""Parses answers of OpenAI's Responses API: a response, whole or as events.

A response is a list of items: messages, calls and reasoning. A server may leave out the events of an item's parts, so
what they have not brought is taken from the item at its end, or from the whole response.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw

from services.router.providers.answer import ABSENT, NOTHING, ProviderAnswer
from services.router.providers.base import UNREADABLE, ProviderError, ProviderUsage
from services.router.providers.errors.classify import ErrorPattern, ErrorPatterns
from services.router.providers.errors.error_body import read_error_body
from services.router.providers.openai.custom_tools import CustomInputs
from services.router.schema.thoughts import ResponsesReasoning
from services.router.schema.tools import ToolCallFragment

_DONE: Final = b"[DONE]"
# Reasoning of earlier turns that is refused: it cannot be decrypted, as after a key of the vendor's is gone, or is of
# another of Azure's resources, or is looked for among stored items.
REFUSED_ITEMS: Final = ErrorPattern(
    frozenset(("invalid_encrypted_content",)),
    re.compile(
        r"^(the encrypted content .{1,200} could not be verified"
        r"|item (with id )?'rs_[^']{1,200}' (not found|of type 'reasoning' was provided without)"
        r"|the requested item was created under a different azure openai resource)"
    ),
)
_CALLS: Final = ("function_call", "custom_tool_call")
# Between two messages of one response, such as a comment and the answer.
_PARAGRAPH: Final = "\n\n"
_STATUSES: Final = {
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
}


class ItemsRefused(ProviderError):
    """The server refuses the reasoning of earlier turns that it was sent."""


class _Event(msgspec.Struct, gc=False):
    """An event whose fields depend on its type; unknown types are ignored."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: Raw = ABSENT
    # At the end of a part.
    text: Raw = ABSENT
    refusal: Raw = ABSENT
    arguments: Raw = ABSENT
    annotation: Raw = ABSENT
    item: Raw = ABSENT
    response: Raw = ABSENT
    error: Raw = ABSENT


class _Part(msgspec.Struct, gc=False):
    """A part of a message, or a text of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: Raw = ABSENT


class _Annotation(msgspec.Struct, gc=False):
    """A place in the text of one part."""

    type: str = ""
    start_index: int = 0
    end_index: int = 0
    title: str | None = None
    url: str | None = None


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    content: list[_Part] | None = None
    # Of a call.
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    # Of a custom tool, in place of arguments.
    input: str | None = None
    # Of reasoning.
    summary: list[_Part] | None = None
    encrypted_content: str | None = None


class _IncompleteDetails(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    status: str = ""
    output: list[Raw] | None = None
    incomplete_details: _IncompleteDetails | None = None
    error: Raw = ABSENT
    usage: Raw = ABSENT


class _Error(msgspec.Struct, gc=False):
    code: str | int | None = None
    type: str | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Raw = ABSENT
    output_tokens: Raw = ABSENT
    # Objects.
    input_tokens_details: Raw = ABSENT
    output_tokens_details: Raw = ABSENT


class _InputTokens(msgspec.Struct, gc=False):
    cached_tokens: Raw = ABSENT
    cache_write_tokens: Raw = ABSENT


class _OutputTokens(msgspec.Struct, gc=False):
    reasoning_tokens: Raw = ABSENT


_events = msgspec.json.Decoder(_Event)
_items = msgspec.json.Decoder(_Item)
_responses = msgspec.json.Decoder(_Response)
_errors = msgspec.json.Decoder(_Error)
_usages = msgspec.json.Decoder(_Usage)
_input_tokens = msgspec.json.Decoder(_InputTokens)
_output_tokens = msgspec.json.Decoder(_OutputTokens)
_texts = msgspec.json.Decoder(str)
_objects = msgspec.json.Decoder(dict[str, Raw])
_annotations = msgspec.json.Decoder(_Annotation)
_annotation_lists = msgspec.json.Decoder(list[_Annotation] | None)


class ResponseAnswer(ProviderAnswer):
    format_name = "a response"
    error_patterns = ErrorPatterns(
        context=ErrorPattern(
            frozenset(("context_length_exceeded",)), re.compile(r"^your input exceeds the context window of this model")
        ),
        account=ErrorPattern(
            frozenset(("insufficient_quota", "credit_balance_exhausted")),
            re.compile(r"^[^\"'`]*you exceeded your current quota"),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        # The parts of messages of which something was said, by their indices and that of their item, with how many
        # characters come before them.
        self._said: dict[tuple[int, int], int] = {}
        # Calls that have begun, and whether any of their arguments came.
        self._begun: dict[int, bool] = {}
        self._custom = CustomInputs()
        # Items of reasoning whose text came.
        self._thought: set[int] = set()
        self._said_characters = 0
        self._last_message: int | None = None

    def _read_event(self, data: bytes) -> None:
        if data == _DONE:
            return
        event = _events.decode(data)
        kind, index = event.type, event.output_index
        if kind == "response.output_text.delta":
            self._say(index, event.content_index, _texts.decode(event.delta))
        elif kind == "response.function_call_arguments.delta":
            self._add_arguments(index, _texts.decode(event.delta))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._thought.add(index)
            self.think(_texts.decode(event.delta))
        elif kind == "response.refusal.delta":
            self._say(index, event.content_index, _texts.decode(event.delta), refuses=True)
        elif kind == "response.output_item.added":
            self._begin_item(index, _items.decode(event.item))
        elif kind == "response.output_item.done":
            self._end_item(index, event.item)
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            self._end(event.response)
            self.is_over = True
        elif kind == "error" or event.error not in NOTHING:
            # OpenAI's own error has its fields in an object, though its documents have them in the event.
            raise self._failure(data if event.error in NOTHING else event.error)
        else:
            self._read_rarer(event)

    def _read_rarer(self, event: _Event) -> None:
        """Reads what is given to custom tools, what is cited, and the end of a part, for servers that send no other
        event of it."""
        index = event.output_index
        if event.type == "response.custom_tool_call_input.delta":
            self._add_input(index, _texts.decode(event.delta))
        elif event.type == "response.output_text.done":
            self._say_once(index, event.content_index, _texts.decode(event.text))
        elif event.type == "response.refusal.done":
            self._say_once(index, event.content_index, _texts.decode(event.refusal), refuses=True)
        elif event.type == "response.function_call_arguments.done":
            self._add_whole_arguments(index, _texts.decode(event.arguments))
        elif event.type == "response.output_text.annotation.added":
            with suppress(*UNREADABLE):
                self._cite(index, event.content_index, [_annotations.decode(event.annotation)])
        elif event.type == "response.reasoning_summary_part.added" and event.summary_index and index in self._thought:
            self.think(_PARAGRAPH)

    def _read_whole(self, body: bytes) -> None:
        self._end(Raw(body))

    def _end(self, said: Raw) -> None:
        response = _responses.decode(said)
        if response.error not in NOTHING:
            raise self._failure(response.error)
        if response.status not in ("completed", "incomplete"):
            raise ProviderError("ended its answer before it was complete")
        if not (self._said or self._begun):
            for index, item in enumerate(response.output or ()):
                self._end_item(index, item)
        self._end_inputs()
        self._add_usage(response.usage)
        if self.is_traced:
            self._note_model(said)
        self.finish(_finish_reason(response))

    def _begin_item(self, index: int, item: _Item) -> None:
        if item.type in _CALLS and index not in self._begun:
            self._begun[index] = False
            self.call(ToolCallFragment(index, item.call_id or item.id, item.name))

    def _end_item(self, index: int, said: Raw) -> None:
        item = _items.decode(said)
        if item.type == "message":
            for place, part in enumerate(item.content or ()):
                self._say_once(index, place, part.text or "")
                with suppress(*UNREADABLE):
                    if part.annotations is not ABSENT:
                        self._cite(index, place, _annotation_lists.decode(part.annotations) or ())
                self._say_once(index, place, part.refusal or "", refuses=True)
        elif item.type == "function_call":
            self._begin_item(index, item)
            self._add_whole_arguments(index, item.arguments or "")
        elif item.type == "custom_tool_call":
            self._begin_item(index, item)
            if not self._begun[index]:
                self._add_input(index, item.input or "", is_whole=True)
            self._end_inputs()
        elif item.type == "reasoning":
            if index not in self._thought:
                self._thought.add(index)
                self.think(_PARAGRAPH.join(part.text or "" for part in item.summary or item.content or ()))
            self._gather(item, said)

    def _gather(self, item: _Item, said: Raw) -> None:
        """Keeps reasoning for the next turn, if it has anything that a server can read."""
        if self.thoughts is not None and (item.encrypted_content or item.content):
            fields = _objects.decode(said)
            # It is of this answer, and refused in a request by some servers.
            fields.pop("status", None)
            fields.setdefault("summary", Raw(b"[]"))
            self.thoughts.add(ResponsesReasoning(msgspec.json.encode(fields).decode(), self._said_characters))

    def _say_once(self, index: int, place: int, text: str, *, refuses: bool = False) -> None:
        if (index, place) not in self._said:
            self._say(index, place, text, refuses=refuses)

    def _say(self, index: int, place: int, text: str, *, refuses: bool = False) -> None:
        if not text:
            return
        if self._last_message not in (None, index):
            text = _PARAGRAPH + text
            self._said.setdefault((index, place), self._said_characters + len(_PARAGRAPH))
        self._last_message = index
        self._said.setdefault((index, place), self._said_characters)
        self._said_characters += len(text)
        if refuses:
            self.refuse(text)
        else:
            self.add_texts(text)

    def _cite(self, index: int, place: int, annotations: Sequence[_Annotation]) -> None:
        begin = self._said.get((index, place), self._said_characters)
        for each in annotations:
            if each.type == "url_citation":
                self.cite(begin + each.start_index, begin + each.end_index, each.title, each.url)

    def _add_arguments(self, index: int, arguments: str) -> None:
        if index in self._begun and arguments:
            self._begun[index] = True
            self.call(ToolCallFragment(index, arguments=arguments))

    def _add_input(self, index: int, text: str, *, is_whole: bool = False) -> None:
        if text or is_whole:
            self._add_arguments(index, self._custom.write(index, text))

    def _end_inputs(self) -> None:
        for index, end in self._custom.end():
            self._add_arguments(index, end)

    def _add_whole_arguments(self, index: int, arguments: str) -> None:
        if not self._begun.get(index, True):
            self._add_arguments(index, arguments)

    def _add_usage(self, usage: Raw) -> None:
        if usage in NOTHING:
            return
        get = self._count(usage, _usages).get
        with suppress(*UNREADABLE):
            said = _usages.decode(usage)
            details: Sequence[tuple[Raw, msgspec.json.Decoder[_InputTokens] | msgspec.json.Decoder[_OutputTokens]]]
            details = ((said.input_tokens_details, _input_tokens), (said.output_tokens_details, _output_tokens))
            for detail, fields in details:
                if detail not in NOTHING:
                    self._count(detail, fields)  # type: ignore[misc]
        if self._counted:
            self.usage = ProviderUsage(
                get("input_tokens"),
                get("output_tokens"),
                get("cached_tokens"),
                get("cache_write_tokens"),
                reasoning_tokens=get("reasoning_tokens"),
            )

    def _failure(self, error: Raw | bytes) -> ProviderError:
        failure = super()._failure(error)
        if REFUSED_ITEMS.is_in(read_error_body(bytes(error))):
            return ItemsRefused(failure.what, failure.failure)
        return failure

    def _status_of(self, error: Raw | bytes) -> int:
        try:
            read = _errors.decode(error)
        except UNREADABLE:
            return 500
        if isinstance(read.code, int):
            return read.code
        return _STATUSES.get(read.code or "") or _STATUSES.get(read.type or "", 500)


def _finish_reason(response: _Response) -> str:
    if response.status == "completed":
        return "stop"
    details = response.incomplete_details
    is_filtered = details is not None and details.reason == "content_filter"
    return "content_filter" if is_filtered else "length"

"""Renders the router's responses as OpenAI's chunks or as one whole completion."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from edge.wire.custom_tools import CustomCalls, input_of
from edge.wire.responses import error_body
from edge.wire.sealed_reasoning import joined_data, reasoning_details
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.response_writer import COMMENT
from services.rules.usage import COLUMNS, parts_of

DONE = b"data: [DONE]\n\n"
# The objects of an answer's usage that break counts down.
DETAILS: Final = {f"{whole}_details": parts for whole in COLUMNS if (parts := parts_of(whole))}

_encode = msgspec.json.encode
DELTA_END = b'},"finish_reason":null}]}\n\n'


def usage_object(usage: Usage, cut_by: str = "") -> dict[str, object]:
    """Builds the usage of an answer; `cut_by` says what ended one whose credit was used up."""
    built: dict[str, object] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    for details, parts in DETAILS.items():
        built[details] = counts = {}
        for part in parts:
            counts[part] = getattr(usage, part)
    if cut_by:
        built["x-legato-end"] = cut_by
    return built


class Chunks:
    """The chunks of one streamed completion. Their common part is rendered once."""

    def __init__(self, completion_id: str, created_s: int, class_id: str, custom_tools: Collection[str] = ()) -> None:
        """`custom_tools` are those whose input is any text."""
        self._custom = CustomCalls(custom_tools) if custom_tools else None
        self._head = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            _encode(completion_id),
            created_s,
            _encode(class_id),
        )
        self._delta_head = self._head + b'{"index":0,"delta":{'
        # What comes before the first content of a piece, and between two.
        self.content_head = self._delta_head + b'"content":'
        self.between_contents = DELTA_END + self.content_head
        # What comes before the finish reason: citations, and sealed thoughts.
        self._closing = b""
        self._reasoning_data = ""

    def opening(self, response: router.ChatResponse | None) -> bytes:
        """Renders the first chunk. Its content is null if the answer begins with a tool call or a refusal."""
        # Behind thoughts there mostly is some text.
        speaks = response is None or response.reasoning or (response.contents and not response.refusal)
        content = b'""' if speaks else b"null"
        return self._delta_head + b'"role":"assistant","content":' + content + b'},"finish_reason":null}]}\n\n'

    def deltas(self, response: router.ChatResponse) -> bytes:
        head, between = self.content_head, self.between_contents
        if response.refusal:
            head = self._delta_head + b'"refusal":'
            between = DELTA_END + head
        contents, calls = response.contents, response.tool_calls
        chunks = head + between.join(map(_encode, contents)) + DELTA_END if contents else b""
        if response.reasoning:
            chunks = self._delta_head + b'"reasoning_content":' + _encode(response.reasoning) + DELTA_END + chunks
        if calls and self._custom is None:
            chunks += self._calls(map(_delta, calls))
        elif calls:
            chunks += self._calls(self._deltas(calls, self._custom))
        return chunks

    def _calls(self, deltas: Iterable[dict[str, object]]) -> bytes:
        head = self._delta_head + b'"tool_calls":['
        return b"".join([head + _encode(delta) + b"]" + DELTA_END for delta in deltas])

    def _deltas(self, calls: Iterable[router.ToolCallDelta], custom: CustomCalls | None) -> Iterator[dict[str, object]]:
        for call in calls:
            text = None if custom is None else custom.take(call.index, call.name, call.arguments)
            if text is None:
                yield _delta(call)
            elif call.id:
                yield {
                    "index": call.index,
                    "id": call.id,
                    "type": "custom",
                    "custom": {"name": call.name, "input": text},
                }
            elif text:
                yield _input_delta(call.index, text)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Adds citations as a chunk before the last."""
        annotations_json = _encode([_annotation(citation) for citation in citations])
        self._closing += self._delta_head + b'"annotations":' + annotations_json + DELTA_END

    def add_reasoning_data(self, data: str) -> None:
        """Adds sealed thoughts; a chunk before the last has them."""
        self._reasoning_data = joined_data(self._reasoning_data, data)

    def closing(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        if self._custom is not None:
            self._closing += self._calls(_input_delta(index, text) for index, text in self._custom.take_rest())
        if self._reasoning_data:
            details_json = _encode(reasoning_details(self._reasoning_data))
            self._closing += self._delta_head + b'"reasoning_details":' + details_json + DELTA_END
        finish = self._closing + self._delta_head + b'},"finish_reason":%b}]}\n\n' % _encode(finish_reason)
        return finish + self._head + b'],"usage":%b}\n\n' % _encode(usage_object(usage, cut_by)) + DONE

    def failure(self, error: LegatoError) -> bytes:
        """Renders the last event of a failed stream: no [DONE] follows."""
        return b"data: " + error_body(error) + b"\n\n"

    def sign_of_life(self) -> bytes:
        return COMMENT


def _delta(call: router.ToolCallDelta) -> dict[str, object]:
    if not call.id:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


def _input_delta(index: int, text: str) -> dict[str, object]:
    return {"index": index, "custom": {"input": text}}


def cited_page(citation: router.Citation) -> dict[str, object]:
    """Renders what a URL citation has, for documents too: clients know no other kind."""
    place = {"start_index": citation.start_index, "end_index": citation.end_index}
    return {**place, "title": citation.title, "url": citation.url}


def _annotation(citation: router.Citation) -> dict[str, object]:
    return {"type": "url_citation", "url_citation": cited_page(citation)}


class Folded:
    """Joins deltas into the message of an answer that is not streamed."""

    def __init__(self) -> None:
        self._contents: list[str] = []
        self._refusals: list[str] = []
        self._reasoning: list[str] = []
        # Ids and names of tool calls, and their arguments in pieces, by index.
        self._calls: dict[int, tuple[str, str]] = {}
        self._arguments: dict[int, list[str]] = {}

    def add(self, response: router.ChatResponse) -> None:
        (self._refusals if response.refusal else self._contents).extend(response.contents)
        if response.reasoning:
            self._reasoning.append(response.reasoning)
        for delta in response.tool_calls:
            if delta.id:
                self._calls[delta.index] = delta.id, delta.name
            self._arguments.setdefault(delta.index, []).append(delta.arguments)

    @property
    def text(self) -> str:
        return "".join(self._contents)

    @property
    def refusal(self) -> str:
        return "".join(self._refusals)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def tool_calls(self) -> list[tuple[str, str, str]]:
        """Returns the id, name and arguments of each call."""
        return [
            (call_id, name, "".join(self._arguments[index])) for index, (call_id, name) in sorted(self._calls.items())
        ]


class Completion(Folded):
    """The completion object of an answer that is not streamed."""

    def __init__(self, completion_id: str, created_s: int, class_id: str, custom_tools: Collection[str] = ()) -> None:
        super().__init__()
        self._custom_tools = custom_tools
        self._completion_id = completion_id
        self._created_s = created_s
        self._class_id = class_id
        self._annotations: list[dict[str, object]] = []
        self._reasoning_data = ""

    def add_reasoning_data(self, data: str) -> None:
        self._reasoning_data = joined_data(self._reasoning_data, data)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._annotations = [_annotation(citation) for citation in citations]

    def _call(self, call_id: str, name: str, arguments: str) -> dict[str, object]:
        if name in self._custom_tools:
            return {"id": call_id, "type": "custom", "custom": {"name": name, "input": input_of(arguments)}}
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def render(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        content, refusal, calls = self.text, self.refusal or None, self.tool_calls()
        message: dict[str, object] = {"role": "assistant", "content": content, "refusal": refusal}
        if refusal or calls:
            message["content"] = content or None
        if calls:
            message["tool_calls"] = [self._call(*call) for call in calls]
        if reasoning := self.reasoning:
            message["reasoning_content"] = reasoning
        if self._reasoning_data:
            message["reasoning_details"] = reasoning_details(self._reasoning_data)
        if self._annotations:
            message["annotations"] = self._annotations
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return _encode(
            {
                "id": self._completion_id,
                "object": "chat.completion",
                "created": self._created_s,
                "model": self._class_id,
                "choices": [choice],
                "usage": usage_object(usage, cut_by),
            }
        )

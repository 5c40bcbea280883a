"""The items of an answer as they grow: a message of text and refusals, and calls of functions and custom tools."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw

from edge.responses.tools import NamedTool, OfferedTools
from edge.wire.custom_tools import CustomInput
from legato_protos.router.v1 import router_pb2 as router

TEXT: Final = "output_text"
REFUSAL: Final = "refusal"
IN_PROGRESS: Final = "in_progress"

# Takes an event: its type, its place and its further fields.
Emit = Callable[[str, dict[str, object]], None]


@dataclass(slots=True)
class OutputPart:
    """A part of a message, whose text stays JSON: pieces of a string, without its quotes."""

    kind: str
    # What says where it is, in each of its events.
    place: dict[str, object]
    pieces: list[bytes] = field(default_factory=list)
    annotations: list[dict[str, object]] = field(default_factory=list)

    @property
    def text(self) -> Raw:
        return Raw(b'"%b"' % b"".join(self.pieces))

    def content(self) -> dict[str, object]:
        if self.kind == REFUSAL:
            return {"type": REFUSAL, "refusal": self.text}
        return {"type": TEXT, "text": self.text, "annotations": self.annotations, "logprobs": []}


@dataclass(slots=True)
class MessageItem:
    item_id: str
    output_index: int
    parts: list[OutputPart] = field(default_factory=list)

    def render(self, status: str) -> dict[str, object]:
        content = [part.content() for part in self.parts]
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def end(self, status: str, emit: Emit) -> None:
        self.end_part(emit)
        emit("output_item.done", {"output_index": self.output_index, "item": self.render(status)})

    def end_part(self, emit: Emit) -> None:
        if self.parts:
            part = self.parts[-1]
            name = "text" if part.kind == TEXT else REFUSAL
            more: dict[str, object] = {"logprobs": []} if part.kind == TEXT else {}
            emit(f"{part.kind}.done", {**part.place, name: part.text, **more})
            emit("content_part.done", {**part.place, "part": part.content()})


@dataclass(slots=True)
class CallItem:
    item_id: str
    output_index: int
    call_id: str
    tool: NamedTool
    _arguments: list[str] = field(default_factory=list)
    _custom_input: CustomInput = field(default_factory=CustomInput)
    # The characters of arguments or input that were told.
    _told: int = 0

    @property
    def _field(self) -> str:
        return "input" if self.tool.is_custom else "arguments"

    def render(self, status: str) -> dict[str, object]:
        return {
            "id": self.item_id,
            "type": "custom_tool_call" if self.tool.is_custom else "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.tool.name,
            **({"namespace": self.tool.namespace} if self.tool.namespace else {}),
            self._field: self._custom_input.whole if self.tool.is_custom else "".join(self._arguments),
        }

    def add(self, arguments: str, emit: Emit) -> None:
        if self.tool.is_custom:
            self._tell(self._custom_input.take(arguments), emit)
        else:
            self._arguments.append(arguments)
            self._tell(arguments, emit)

    def end(self, status: str, emit: Emit) -> None:
        item = self.render(status)
        whole = str(item[self._field])
        self._tell(whole[self._told :], emit)
        self._emit("done", {self._field: whole}, emit)
        emit("output_item.done", {"output_index": self.output_index, "item": item})

    def _tell(self, delta: str, emit: Emit) -> None:
        if delta:
            self._told += len(delta)
            self._emit("delta", {"delta": delta}, emit)

    def _emit(self, kind: str, fields: dict[str, object], emit: Emit) -> None:
        name = "custom_tool_call_input" if self.tool.is_custom else "function_call_arguments"
        emit(f"{name}.{kind}", {"item_id": self.item_id, "output_index": self.output_index, **fields})


class Output:
    """The items of one answer. What happens to them is emitted as events."""

    def __init__(self, request_id: str, tools: OfferedTools, emit: Emit) -> None:
        self._request_id = request_id
        self._tools = tools
        self._emit = emit
        self._items: list[MessageItem | CallItem] = []
        self._calls: dict[int, CallItem] = {}
        self._message: MessageItem | None = None

    def render(self, status: str = "completed") -> list[dict[str, Any]]:
        """Returns the items; the last one has this status."""
        last = len(self._items) - 1
        return [item.render(status if at == last else "completed") for at, item in enumerate(self._items)]

    def open_part(self, kind: str) -> OutputPart:
        """Returns the part that text of this kind is added to, which may be a new one."""
        if self._message is None:
            self._message = message = MessageItem(self._next_id("msg"), len(self._items))
            self._begin(message)
        message = self._message
        if not message.parts or message.parts[-1].kind != kind:
            message.end_part(self._emit)
            index = {"output_index": message.output_index, "content_index": len(message.parts)}
            part = OutputPart(kind, {"item_id": message.item_id, **index})
            message.parts.append(part)
            self._emit("content_part.added", {**part.place, "part": part.content()})
        return message.parts[-1]

    def add_calls(self, deltas: Iterable[router.ToolCallDelta]) -> None:
        for delta in deltas:
            call = self._calls.get(delta.index)
            if call is None:
                if self._message is not None:
                    self._message.end("completed", self._emit)
                    self._message = None
                tool = self._tools.tool_of(delta.name)
                item_id = self._next_id("ctc" if tool.is_custom else "fc")
                call = self._calls[delta.index] = CallItem(item_id, len(self._items), delta.id, tool)
                self._begin(call)
            call.add(delta.arguments, self._emit)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Adds citations to the text, which is complete."""
        if self._message is not None and (part := self._message.parts[-1]).kind == TEXT:
            part.annotations = [_annotation(citation) for citation in citations]
            for index, annotation in enumerate(part.annotations):
                fields = {**part.place, "annotation_index": index, "annotation": annotation}
                self._emit("output_text.annotation.added", fields)

    def end(self, status: str) -> None:
        """Ends all items that are open; the last one with this status. Calls are open until the end, since pieces of
        several may come in turn."""
        last = len(self._items) - 1
        for at, item in enumerate(self._items):
            if item is self._message or isinstance(item, CallItem):
                item.end(status if at == last else "completed", self._emit)
        self._message = None

    def _begin(self, item: MessageItem | CallItem) -> None:
        self._items.append(item)
        self._emit("output_item.added", {"output_index": item.output_index, "item": item.render(IN_PROGRESS)})

    def _next_id(self, prefix: str) -> str:
        return f"{prefix}_{self._request_id}{len(self._items)}"


def _annotation(citation: router.Citation) -> dict[str, object]:
    place = {"start_index": citation.start_index, "end_index": citation.end_index}
    return {"type": "url_citation", **place, "title": citation.title, "url": citation.url}

"""The items of an answer as they grow: messages, thoughts, and calls of functions and custom tools."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from edge.responses.response_items import TEXT, Emit, MessageItem, OutputItem, OutputPart, ReasoningForm, ReasoningItem
from edge.responses.tools import NamedTool, OfferedTools
from edge.wire.completion_json import cited_page
from edge.wire.custom_tools import CustomInput
from edge.wire.sealed_reasoning import joined_data
from legato_protos.router.v1 import router_pb2 as router

IN_PROGRESS: Final = "in_progress"


@dataclass(slots=True)
class CallItem(OutputItem):
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
        whole = str(self.render(status)[self._field])
        self._tell(whole[self._told :], emit)
        self._emit("done", {self._field: whole}, emit)
        self.emit_item("done", status, emit)

    def _tell(self, delta: str, emit: Emit) -> None:
        if delta:
            self._told += len(delta)
            self._emit("delta", {"delta": delta}, emit)

    def _emit(self, kind: str, fields: dict[str, object], emit: Emit) -> None:
        name = "custom_tool_call_input" if self.tool.is_custom else "function_call_arguments"
        emit(f"{name}.{kind}", {"item_id": self.item_id, "output_index": self.output_index, **fields})


class Output:
    """The items of one answer. What happens to them is emitted as events."""

    def __init__(self, request_id: str, tools: OfferedTools, reasoning: ReasoningForm, emit: Emit) -> None:
        self._request_id = request_id
        self._tools = tools
        self._form = reasoning
        self._emit = emit
        self._items: list[MessageItem | CallItem | ReasoningItem] = []
        self._calls: dict[int, CallItem] = {}
        # What is open; calls are until the end, since pieces of several may come in turn.
        self._message: MessageItem | None = None
        self._reasoning: ReasoningItem | None = None
        # Of thoughts whose item is not ended.
        self._sealed = ""

    def render(self, status: str = "completed") -> list[dict[str, Any]]:
        """Returns the items; the last one has this status."""
        last = len(self._items) - 1
        return [item.render(status if at == last else "completed") for at, item in enumerate(self._items)]

    def take_reasoning(self, response: router.ChatResponse) -> None:
        """Adds the thoughts of a response, and ends them if it has more, which follows them."""
        if self._form.has_summary and response.reasoning:
            self._open_reasoning().add(response.reasoning, self._emit)
        if response.contents or response.tool_calls:
            self.end_reasoning()

    def seal(self, data: str) -> None:
        """Adds the seal of the thoughts before what comes next."""
        if self._form.has_encrypted:
            self._sealed = joined_data(self._sealed, data)

    def end_reasoning(self) -> None:
        """Ends thoughts, with their seal, which may be all that there is of them."""
        if self._reasoning is None and not self._sealed:
            return
        item = self._open_reasoning()
        item.encrypted_content, self._sealed, self._reasoning = self._sealed, "", None
        item.end("completed", self._emit)

    def _open_reasoning(self) -> ReasoningItem:
        if self._reasoning is None:
            self._end_message()
            self._reasoning = ReasoningItem(self._next_id("rs"), len(self._items))
            self._begin(self._reasoning)
        return self._reasoning

    def _end_message(self) -> None:
        if self._message is not None:
            self._message.end("completed", self._emit)
            self._message = None

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
                self._end_message()
                tool = self._tools.tool_of(delta.name)
                item_id = self._next_id("ctc" if tool.is_custom else "fc")
                call = self._calls[delta.index] = CallItem(item_id, len(self._items), delta.id, tool)
                self._begin(call)
            call.add(delta.arguments, self._emit)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Adds citations to the text, which is complete."""
        if self._message is not None and (part := self._message.parts[-1]).kind == TEXT:
            part.annotations = [{"type": "url_citation", **cited_page(citation)} for citation in citations]
            for index, annotation in enumerate(part.annotations):
                fields = {**part.place, "annotation_index": index, "annotation": annotation}
                self._emit("output_text.annotation.added", fields)

    def end(self, status: str) -> None:
        """Ends all items that are open; the last one with this status."""
        self.end_reasoning()
        last = len(self._items) - 1
        for at, item in enumerate(self._items):
            if item is self._message or isinstance(item, CallItem):
                item.end(status if at == last else "completed", self._emit)
        self._message = None

    def _begin(self, item: MessageItem | CallItem | ReasoningItem) -> None:
        self._items.append(item)
        item.emit_item("added", IN_PROGRESS, self._emit)

    def _next_id(self, prefix: str) -> str:
        return f"{prefix}_{self._request_id}{len(self._items)}"

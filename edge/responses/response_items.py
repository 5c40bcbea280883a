"""The items of a response, but for calls, as they grow: a message of text and refusals, and what the model thinks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import Raw

TEXT: Final = "output_text"
REFUSAL: Final = "refusal"

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
class OutputItem:
    item_id: str
    output_index: int

    def render(self, status: str) -> dict[str, object]:
        raise NotImplementedError

    def emit_item(self, event: str, status: str, emit: Emit) -> None:
        emit(f"output_item.{event}", {"output_index": self.output_index, "item": self.render(status)})


@dataclass(slots=True)
class MessageItem(OutputItem):
    parts: list[OutputPart] = field(default_factory=list)

    def render(self, status: str) -> dict[str, object]:
        content = [part.content() for part in self.parts]
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def end(self, status: str, emit: Emit) -> None:
        self.end_part(emit)
        self.emit_item("done", status, emit)

    def end_part(self, emit: Emit) -> None:
        if self.parts:
            part = self.parts[-1]
            name = "text" if part.kind == TEXT else REFUSAL
            more: dict[str, object] = {"logprobs": []} if part.kind == TEXT else {}
            emit(f"{part.kind}.done", {**part.place, name: part.text, **more})
            emit("content_part.done", {**part.place, "part": part.content()})


class ReasoningForm(NamedTuple):
    """The forms in which a request asks for the model's thoughts: a text, and what the next turn has them by."""

    has_summary: bool = False
    has_encrypted: bool = False


@dataclass(slots=True)
class ReasoningItem(OutputItem):
    """Thoughts. They have no status, which OpenAI refuses in items that come back."""

    encrypted_content: str = ""
    _texts: list[str] = field(default_factory=list)

    @property
    def _place(self) -> dict[str, object]:
        return {"item_id": self.item_id, "output_index": self.output_index, "summary_index": 0}

    def render(self, status: str) -> dict[str, object]:
        summary = [self._part()] if self._texts else []
        encrypted = {"encrypted_content": self.encrypted_content} if self.encrypted_content else {}
        return {"id": self.item_id, "type": "reasoning", "summary": summary, **encrypted}

    def add(self, text: str, emit: Emit) -> None:
        if not self._texts:
            emit("reasoning_summary_part.added", {**self._place, "part": self._part()})
        self._texts.append(text)
        emit("reasoning_summary_text.delta", {**self._place, "delta": text})

    def end(self, status: str, emit: Emit) -> None:
        if self._texts:
            part = self._part()
            emit("reasoning_summary_text.done", {**self._place, "text": part["text"]})
            emit("reasoning_summary_part.done", {**self._place, "part": part})
        self.emit_item("done", status, emit)

    def _part(self) -> dict[str, object]:
        return {"type": "summary_text", "text": "".join(self._texts)}

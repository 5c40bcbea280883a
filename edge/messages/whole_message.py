"""Renders the message of an answer that is not streamed."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from edge.messages.message_json import (
    NOT_SEALED,
    MessageForm,
    citation_object,
    message_object,
    redacted_block,
    stop_fields,
    thinking_block,
    usage_object,
)
from edge.wire.completion_json import Folded
from edge.wire.sealed_reasoning import joined_data
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage

_encode = msgspec.json.encode
_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_NO_INPUT: Final = Raw(b"{}")


def is_complete(arguments: str) -> bool:
    """Returns whether the arguments of a call are a JSON object."""
    return _input(arguments) is not None


def _input(arguments: str) -> Raw | None:
    given = arguments.encode()
    try:
        _object_decoder.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Raw(given)


class WholeMessage(Folded):
    def __init__(self, message_id: str, class_id: str, form: MessageForm) -> None:
        super().__init__()
        self._message_id = message_id
        self._class_id = class_id
        self._form = form
        self.stop_sequence: str | None = None
        self._citations: list[dict[str, object]] = []
        self._sealed = ""

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._citations = [citation_object(citation) for citation in citations]

    def add_reasoning_data(self, data: str) -> None:
        self._sealed = joined_data(self._sealed, data)

    def render(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        refusal = self.refusal
        content: list[object] = []
        if reasoning := self.reasoning:
            content.append(thinking_block("" if self._form.omits_thinking else reasoning, self._sealed or NOT_SEALED))
        elif self._sealed:
            content.append(redacted_block(self._sealed))
        if text := self.text + refusal:
            content.append({"type": "text", "text": text, "citations": self._citations or None})
        for call_id, name, arguments in self.tool_calls():
            # Only of a call that was cut off are they no object.
            given = _input(arguments) or _NO_INPUT
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
        message = message_object(self._message_id, self._class_id, content)
        message |= stop_fields(finish_reason, self.stop_sequence, self._form, is_refused=bool(refusal))
        message["usage"] = usage_object(usage, cut_by)
        if self._form.applied_edits is not None:
            message["context_management"] = {"applied_edits": self._form.applied_edits}
        return _encode(message)

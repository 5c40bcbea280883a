"""Renders answers as Anthropic's messages: what an answer and its events have in common, and the whole answer."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from edge.wire.completion_json import Folded
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage

# The prefix of a message's id, before the id of its request.
MESSAGE_PREFIX: Final = "msg_"

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_encode = msgspec.json.encode
_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_NO_INPUT: Final = Raw(b"{}")


def message_object(message_id: str, class_id: str, content: list[object]) -> dict[str, object]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": class_id,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def stop_reason(finish_reason: str, *, is_refused: bool) -> str:
    return "refusal" if is_refused else _STOP_REASONS.get(finish_reason, "end_turn")


def usage_object(usage: Usage, cut_by: str = "") -> dict[str, object]:
    """Builds the usage of an answer. Its counts of input are parts: what was neither read from a cache nor written to
    one comes first, and writing costs nothing besides here."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        **({"x-legato-end": cut_by} if cut_by else {}),
    }


def citation_object(citation: router.Citation) -> dict[str, object]:
    """Renders a citation of a page, for documents too. What was cited is not sent again, and needs not be."""
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": "",
        "encrypted_index": "",
    }


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
    """The message of an answer that is not streamed."""

    def __init__(self, message_id: str, class_id: str, *, tells_edits: bool = False) -> None:
        super().__init__()
        self._message_id = message_id
        self._class_id = class_id
        self._tells_edits = tells_edits
        self._citations: list[dict[str, object]] = []

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._citations = [citation_object(citation) for citation in citations]

    def render(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        refusal = self.refusal
        content: list[object] = []
        if text := self.text + refusal:
            content.append({"type": "text", "text": text, "citations": self._citations or None})
        for call_id, name, arguments in self.tool_calls():
            # Only of a call that was cut off are they no object.
            given = _input(arguments) or _NO_INPUT
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
        message = message_object(self._message_id, self._class_id, content)
        message["stop_reason"] = stop_reason(finish_reason, is_refused=bool(refusal))
        message["usage"] = usage_object(usage, cut_by)
        if self._tells_edits:
            message["context_management"] = {"applied_edits": []}
        return _encode(message)

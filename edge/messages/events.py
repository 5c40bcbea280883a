"""Renders the events of a streamed message.

Blocks of content follow each other: one is stopped before the next is started. Pieces of a call are held back while
those of an earlier one still come, as from models that make several at a time.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from edge.messages.errors import error_object
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
from edge.messages.whole_message import is_complete
from edge.wire.sealed_reasoning import joined_data
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR, unpack_piece

_PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b:'
_DELTA_END: Final = b"}}\n\n"

_encode = msgspec.json.encode


class MessageEvents:
    def __init__(self, message_id: str, class_id: str, request_id: str, form: MessageForm) -> None:
        self._message_id = message_id
        self._class_id = class_id
        self._request_id = request_id
        self._form = form
        # The stop that ended the answer, if its provider tells.
        self.stop_sequence: str | None = None
        self._has_begun = False
        self._is_refused = False
        # The number of the block that is open, or was last.
        self._block = -1
        # What comes before the text of a piece if a block of text is open, and between two.
        self._text_head = self._between_texts = b""
        # The index of the call whose block is open, and its arguments up to now.
        self._call: int | None = None
        self._arguments: list[str] = []
        # A block of thoughts is open; and the seal of thoughts whose block is not stopped.
        self._is_thinking = False
        self._sealed = ""
        # Pieces of later calls; thoughts and texts that come after a call.
        self._waiting: list[router.ToolCallDelta] = []
        self._late_thoughts: list[str] = []
        self._late_texts: list[str] = []
        self._citations: list[router.Citation] = []

    def opening(self, response: router.ChatResponse | None) -> bytes:
        """Renders the start of the message, once."""
        if self._has_begun:
            return b""
        self._has_begun = True
        message = message_object(self._message_id, self._class_id, [])
        # What is known so far. The last event tells the counts of the whole answer.
        message["usage"] = usage_object(Usage(prompt_tokens=0 if response is None else response.prompt_tokens))
        return _event("message_start", message=message)

    def sign_of_life(self) -> bytes:
        return self.opening(None) + _PING

    def deltas(self, response: router.ChatResponse) -> bytes:
        self._is_refused = self._is_refused or response.refusal
        events = b""
        if self._call is not None:
            self._late_thoughts += [response.reasoning] if response.reasoning else []
            self._late_texts += response.contents
        else:
            if response.reasoning:
                events = self._think([response.reasoning])
            if self._sealed and (response.contents or response.tool_calls):
                events += self._stop_thinking()
            if response.contents:
                events += self._texts(response.contents)
        for delta in response.tool_calls:
            events += self._call_delta(delta)
        return events

    def _think(self, texts: Iterable[str]) -> bytes:
        events = b""
        if not self._is_thinking:
            events = self._start(thinking_block("", ""))
            self._is_thinking = True
        if self._form.omits_thinking:
            return events
        head = _DELTA % (self._block, b'thinking_delta","thinking"')
        return events + b"".join([head + _encode(text) + _DELTA_END for text in texts])

    def _stop_thinking(self) -> bytes:
        """Renders the end of thoughts, with their seal. Without a text they are a block of their own."""
        if self._is_thinking:
            return self._stop()
        events = self._start(redacted_block(self._sealed))
        self._sealed = ""
        return events + _event("content_block_stop", index=self._block)

    def _texts(self, texts: Iterable[str]) -> bytes:
        events = b""
        if not self._text_head:
            events = self._start({"type": "text", "text": ""})
            self._text_head = _DELTA % (self._block, b'text_delta","text"')
            self._between_texts = _DELTA_END + self._text_head
        return events + self._text_head + self._between_texts.join(map(_encode, texts)) + _DELTA_END

    def packed(self, packed: bytes) -> bytes:
        """Renders a packed piece."""
        if not self._text_head:
            return self.deltas(unpack_piece(packed))
        return self._text_head + packed[PACKED_HEAD_BYTES:].replace(SEPARATOR, self._between_texts) + _DELTA_END

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Adds citations to the block of text, before it is stopped."""
        self._citations = list(citations)

    def add_reasoning_data(self, data: str) -> None:
        """Adds the seal of the thoughts before what comes next."""
        self._sealed = joined_data(self._sealed, data)

    def closing(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        events = self._release(is_over=True)
        if self._late_thoughts:
            events += self._think(self._late_thoughts)
        if self._late_texts:
            events += self._texts(self._late_texts)
        if self._text_head:
            for citation in self._citations:
                cited = {"type": "citations_delta", "citation": citation_object(citation)}
                events += _event("content_block_delta", index=self._block, delta=cited)
        events += self._stop()
        if self._sealed:
            events += self._stop_thinking()
        stopped = stop_fields(finish_reason, self.stop_sequence, self._form, is_refused=self._is_refused)
        told: dict[str, object] = {"delta": stopped, "usage": usage_object(usage, cut_by)}
        if self._form.applied_edits is not None:
            told["context_management"] = {"applied_edits": self._form.applied_edits}
        events += _event("message_delta", **told)
        return events + _event("message_stop")

    def failure(self, error: LegatoError) -> bytes:
        """Renders the last event of a stream that failed."""
        return b"event: error\ndata: %b\n\n" % _encode(error_object(error, self._request_id))

    def _call_delta(self, delta: router.ToolCallDelta) -> bytes:
        if delta.index == self._call:
            events = self._add_arguments(delta.arguments)
            return events + self._release() if self._waiting else events
        self._waiting.append(delta)
        return self._release()

    def _release(self, *, is_over: bool = False) -> bytes:
        """Renders pieces that waited, as far as the calls before them are complete, or the answer is over."""
        events = b""
        while self._waiting and (is_over or self._call is None or is_complete("".join(self._arguments))):
            index = min(delta.index for delta in self._waiting)
            released = [delta for delta in self._waiting if delta.index == index]
            self._waiting = [delta for delta in self._waiting if delta.index != index]
            events += self._start({"type": "tool_use", "id": released[0].id, "name": released[0].name, "input": {}})
            self._call, self._arguments = index, []
            for delta in released:
                events += self._add_arguments(delta.arguments)
        return events

    def _add_arguments(self, arguments: str) -> bytes:
        self._arguments.append(arguments)
        return _DELTA % (self._block, b'input_json_delta","partial_json"') + _encode(arguments) + _DELTA_END

    def _start(self, block: dict[str, object]) -> bytes:
        events = self._stop()
        self._block += 1
        events += _event("content_block_start", index=self._block, content_block=block)
        return events if self._block else events + _PING

    def _stop(self) -> bytes:
        """Stops the block that is open, if one is."""
        events = b""
        if self._is_thinking:
            signed = {"type": "signature_delta", "signature": self._sealed or NOT_SEALED}
            events = _event("content_block_delta", index=self._block, delta=signed)
            self._sealed = ""
        elif not self._text_head and self._call is None:
            return b""
        self._text_head, self._call, self._is_thinking = b"", None, False
        return events + _event("content_block_stop", index=self._block)


def _event(kind: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))

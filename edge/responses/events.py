"""Renders an answer as a response: as typed events with sequence numbers, or as one object."""

from collections.abc import Iterable
from typing import Final

import msgspec

from edge.responses.output import IN_PROGRESS, Output
from edge.responses.request import rename_param
from edge.responses.response_items import REFUSAL, TEXT, OutputPart, ReasoningForm
from edge.responses.response_json import ResponseObject, end_status
from edge.responses.tools import OfferedTools
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.response_writer import COMMENT
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR

# OpenAI's codes for errors of ours, by their status; others have the code of the error table.
_CODES: Final = {429: "rate_limit_exceeded", 500: "server_error", 502: "server_error", 503: "server_error"}

_encode = msgspec.json.encode


class _Answer:
    def __init__(self, response: ResponseObject, tools: OfferedTools, reasoning: ReasoningForm) -> None:
        self._response = response
        self._output = Output(response.request_id, tools, reasoning, self._emit)

    def _emit(self, name: str, fields: dict[str, object], prefix: str = "response.") -> None:
        """Tells what happens to an item, if the answer is streamed."""

    def add(self, response: router.ChatResponse) -> None:
        self._output.take_reasoning(response)
        if response.contents:
            self._add_texts([_encode(text) for text in response.contents], REFUSAL if response.refusal else TEXT)
        self._output.add_calls(response.tool_calls)

    def _add_texts(self, texts_json: Iterable[bytes], kind: str) -> None:
        """Adds texts, each as JSON."""
        raise NotImplementedError

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._output.cite(citations)

    def add_reasoning_data(self, data: str) -> None:
        self._output.seal(data)


class ResponseEvents(_Answer):
    def __init__(self, response: ResponseObject, tools: OfferedTools, reasoning: ReasoningForm) -> None:
        super().__init__(response, tools, reasoning)
        self._events: list[bytes] = []
        self._sequence_number = 0
        # The part that texts are added to, and its event up to the text.
        self._part: OutputPart | None = None
        self._delta_head = b""

    def opening(self, response: router.ChatResponse | None) -> bytes:
        begun = self._response.render(IN_PROGRESS)
        self._emit("created", {"response": begun})
        self._emit("in_progress", {"response": begun})
        return self._take()

    def deltas(self, response: router.ChatResponse) -> bytes:
        self.add(response)
        return self._take()

    def packed(self, packed: bytes) -> bytes:
        self._add_texts(packed[PACKED_HEAD_BYTES:].split(SEPARATOR), TEXT)
        return self._take()

    def _add_texts(self, texts_json: Iterable[bytes], kind: str) -> None:
        part = self._output.open_part(kind)
        if part is not self._part:
            self._part = part
            name = f"response.{part.kind}.delta"
            place = _encode({"type": name, **part.place, **({"logprobs": []} if kind == TEXT else {})})
            self._delta_head = b'event: %b\ndata: %b,"delta":' % (name.encode(), place[:-1])
        for text_json in texts_json:
            part.pieces.append(text_json[1:-1])
            self._events.append(
                b'%b%b,"sequence_number":%d}\n\n' % (self._delta_head, text_json, self._sequence_number)
            )
            self._sequence_number += 1

    def closing(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        status = end_status(finish_reason)
        self._output.end(status)
        ended = self._response.render_end(self._output.render(status), finish_reason, usage, cut_by)
        self._emit(status, {"response": ended})
        return self._take()

    def failure(self, error: LegatoError) -> bytes:
        """Renders both events of a failure: official clients raise the first, and agents wait for the second."""
        opening = self.opening(None) if not self._sequence_number else b""
        code = _CODES.get(error.wire.http_status, error.wire.code)
        told = {"code": code, "message": error.message, "param": rename_param(error.param)}
        self._emit("error", {**told, "error": {"type": error.wire.type, **told}}, prefix="")
        failed = {"code": code, "message": error.message}
        output = self._output.render("incomplete")
        self._emit("failed", {"response": self._response.render("failed", output, error=failed)})
        return opening + self._take()

    def sign_of_life(self) -> bytes:
        return COMMENT

    def _emit(self, name: str, fields: dict[str, object], prefix: str = "response.") -> None:
        kind = prefix + name
        data = _encode({"type": kind, **fields, "sequence_number": self._sequence_number})
        self._sequence_number += 1
        self._events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def _take(self) -> bytes:
        events, self._events = self._events, []
        return b"".join(events)


class GatheredResponse(_Answer):
    """The response object of an answer that is not streamed."""

    def _add_texts(self, texts_json: Iterable[bytes], kind: str) -> None:
        self._output.open_part(kind).pieces += [text_json[1:-1] for text_json in texts_json]

    def render(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes:
        self._output.end_reasoning()
        output = self._output.render(end_status(finish_reason))
        return _encode(self._response.render_end(output, finish_reason, usage, cut_by))

"""Puts the pieces of a streamed answer together."""

from collections.abc import Sequence

from legato_protos.chat.v1.chat_pb2 import CompleteResponse, Delta, Finished, Started, StreamResponse, ToolCall
from legato_protos.client.errors import LegatoError, Reason


class StreamedAnswer:
    def __init__(self) -> None:
        self.started = Started()
        self._finished: Finished | None = None
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: dict[int, ToolCall] = {}

    @property
    def text(self) -> str:
        """Returns the text that has come so far."""
        return "".join(self._texts)

    def add(self, piece: StreamResponse) -> Sequence[Delta]:
        """Takes a piece in, and returns its deltas."""
        if piece.HasField("started"):
            self.started = piece.started
        for delta in piece.deltas:
            self._add_delta(delta)
        if piece.HasField("finished"):
            self._finished = piece.finished
        return piece.deltas

    def response(self) -> CompleteResponse:
        """Returns the whole answer, as `Complete` would have; before the end of the stream this is an error."""
        finished = self._finished
        if finished is None:
            raise LegatoError(Reason.INTERNAL, "The stream has not ended.", request_id=self.started.request_id or None)
        response = CompleteResponse(
            request_id=self.started.request_id,
            model=self.started.model,
            create_time=self.started.create_time,
            finish_reason=finished.finish_reason,
            usage=finished.usage,
            cut_by=finished.cut_by,
            max_tokens=self.started.max_tokens,
            attempt=self.started.attempt,
            ignored=self.started.ignored,
        )
        response.message.text = self.text
        response.message.refusal = "".join(self._refusals)
        response.message.reasoning = "".join(self._reasoning)
        response.message.reasoning_data = finished.reasoning_data
        response.message.tool_calls.extend(call for _, call in sorted(self._tool_calls.items()))
        response.message.citations.extend(finished.citations)
        return response

    def _add_delta(self, delta: Delta) -> None:
        match delta.WhichOneof("kind"):
            case "text":
                self._texts.append(delta.text)
            case "refusal":
                self._refusals.append(delta.refusal)
            case "reasoning":
                self._reasoning.append(delta.reasoning)
            case "tool_call":
                piece = delta.tool_call
                call = self._tool_calls.setdefault(piece.index, ToolCall())
                call.id += piece.id
                call.name += piece.name
                call.is_custom = call.is_custom or piece.is_custom
                call.arguments += piece.arguments

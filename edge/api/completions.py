"""A chat in OpenAI's chat completions: its body is what the edge validates, and its pieces leave as chunks."""

from collections.abc import Sequence

from edge.billing.hold import ChatHold
from edge.chat.reply import Reply
from edge.http.http_chat import HttpChat
from edge.http.replies import StreamedHttpReply, WholeHttpReply
from edge.wire.answer_ids import COMPLETION_PREFIX
from edge.wire.chat_request import ChatBody
from edge.wire.completion_json import DELTA_END, Chunks, Completion
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_CHAT
from services.chassis.http.asgi import BODY_WRITER, Send
from services.chassis.http.response_writer import ResponseWriter
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR


class CompletionChat(HttpChat):
    api = CHAT_API_CHAT

    def open_reply(self, body: ChatBody, hold: ChatHold) -> Reply:
        edge = self._edge
        completion = f"{COMPLETION_PREFIX}{self.request_id}", int(edge.clock.now().timestamp()), hold.class_id
        if not body.stream:
            return WholeHttpReply(self._send, Completion(*completion, body.custom_tools), body.ignored)
        writer = self.scope[BODY_WRITER]
        return ChunkedReply(self._send, Chunks(*completion, body.custom_tools), body.ignored, writer, edge.keepalive_s)


class ChunkedReply(StreamedHttpReply):
    def __init__(
        self, send: Send, chunks: Chunks, ignored: Sequence[str], writer: ResponseWriter, keepalive_s: float
    ) -> None:
        super().__init__(send, chunks, ignored, writer, keepalive_s)
        self._chunks = chunks

    def write_packed(self, packed: bytes) -> None:
        # Rendered here, and not by a method of the chunks: all but the first and the last piece come this way.
        if self.is_padded:
            super().write_packed(packed)
            return
        chunks, texts_json = self._chunks, packed[PACKED_HEAD_BYTES:]
        self._writer.write(chunks.content_head + texts_json.replace(SEPARATOR, chunks.between_contents) + DELTA_END)

"""A chat that comes in by Anthropic's Messages, and the way its answer is written."""

import re
from collections.abc import Iterable
from typing import Final

from edge.billing.hold import ChatHold
from edge.chat.reply import Reply
from edge.http.converted_chat import ConvertedChat, ConvertedStream
from edge.http.replies import HttpReply, WholeHttpReply
from edge.messages.errors import render_error, request_id_header
from edge.messages.events import MessageEvents
from edge.messages.request import RenderedChat, render_chat
from edge.messages.whole_message import WholeMessage
from edge.wire.answer_ids import MESSAGE_PREFIX
from edge.wire.chat_request import ChatBody
from edge.wire.checked_json import MOST_NAMES, OTHERS
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_MESSAGES
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import BODY_WRITER, Headers

_BETA_HEADER: Final = b"anthropic-beta"
_BETA: Final = re.compile(r"(?P<name>[a-z0-9-]{1,48}?)-\d{4}-?\d{2}-?\d{2}")
# What they ask for is done, needs nothing to be done, or is told by a field of the request.
_KNOWN_BETAS: Final = frozenset((
    "claude-code", "context-management", "effort", "extended-cache-ttl", "fine-grained-tool-streaming",
    "interleaved-thinking", "prompt-caching", "prompt-caching-scope", "structured-outputs", "token-counting", "tools",
))  # fmt: skip


class MessagesChat(ConvertedChat):
    api = CHAT_API_MESSAGES
    _rendered: RenderedChat

    async def convert(self, body: bytes, *, may_search: bool) -> bytes:
        self._rendered = await render_chat(body)
        return self._rendered.take_body()

    def open_reply(self, body: ChatBody, hold: ChatHold) -> Reply:
        body.kept_thinking_turns = self._rendered.kept_turns
        edge, request_id, form = self._edge, self.request_id, self._rendered.form
        ignored = (*unknown_betas(self.scope["headers"]), *self._rendered.ignored, *body.ignored)
        message_id = f"{MESSAGE_PREFIX}{request_id}"
        reply: HttpReply
        if body.stream:
            events = MessageEvents(message_id, hold.class_id, request_id, form)
            reply = EventReply(self._send, events, ignored, self.scope[BODY_WRITER], edge.keepalive_s)
        else:
            reply = WholeMessageReply(self._send, WholeMessage(message_id, hold.class_id, form), ignored)
        reply.put_headers(request_id_header(request_id))
        return reply

    @staticmethod
    def render_error(error: LegatoError, request_id: str) -> tuple[bytes, Headers]:
        return render_error(error, request_id)


class WholeMessageReply(WholeHttpReply):
    _whole: WholeMessage

    def record_stop(self, sequence: str) -> None:
        self._whole.stop_sequence = sequence


class EventReply(ConvertedStream):
    has_padding_field = False
    _events: MessageEvents

    def record_stop(self, sequence: str) -> None:
        self._events.stop_sequence = sequence


def unknown_betas(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Returns the betas of a request that are not known here."""
    given = b",".join(value for name, value in headers if name == _BETA_HEADER)
    names = [name.strip() for name in given.decode("latin-1").split(",")]
    read = [(name, _BETA.fullmatch(name)) for name in names if name]
    unknown = [name for name, beta in read if beta is not None and beta["name"] not in _KNOWN_BETAS]
    others = any(beta is None for _, beta in read) or len(unknown) > MOST_NAMES
    return [*unknown[:MOST_NAMES], *([OTHERS] if others else [])]

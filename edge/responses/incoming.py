"""A chat in OpenAI's Responses: its body becomes that of a chat, and its pieces leave as events of a response."""

from edge.access.principals import Principals
from edge.backends.auth import Principal
from edge.billing.hold import ChatHold
from edge.chat.reply import Reply
from edge.http.http_chat import HttpChat
from edge.http.replies import StreamedHttpReply, WholeHttpReply
from edge.responses.events import GatheredResponse, ResponseEvents
from edge.responses.request import ConvertedRequest, convert_request, rename_param
from edge.wire.body_reader import check_size
from edge.wire.chat_request import ChatBody
from edge.wire.response_json import ResponseObject
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_RESPONSES
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY_WRITER
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR


class ResponseChat(HttpChat):
    api = CHAT_API_RESPONSES
    _principal: Principal
    _request: ConvertedRequest

    async def identify(self, principals: Principals) -> Principal:
        self._principal = await super().identify(principals)
        return self._principal

    async def read(self, memory: BudgetShare) -> bytes:
        request = await convert_request(await super().read(memory), may_search=self._principal.search)
        check_size(len(request.chat_json))
        memory.grow_to(len(request.chat_json))
        self._request = request
        return request.chat_json

    def open_reply(self, body: ChatBody, hold: ChatHold) -> Reply:
        edge, request = self._edge, self._request
        ignored = (*request.ignored, *body.ignored)
        response = ResponseObject(
            self.request_id,
            int(edge.clock.now().timestamp()),
            hold.class_id,
            request.settings,
            lambda: edge.clock.now().timestamp(),
        )
        if not body.stream:
            return WholeHttpReply(self._send, GatheredResponse(response, request.tools, request.reasoning), ignored)
        events = ResponseEvents(response, request.tools, request.reasoning)
        return ResponseReply(self._send, events, ignored, self.scope[BODY_WRITER], edge.keepalive_s)

    @staticmethod
    def name_param(param: str | None) -> str | None:
        return rename_param(param)


class ResponseReply(StreamedHttpReply):
    _events: ResponseEvents

    def takes_failure(self, error: LegatoError) -> bool:
        """As OpenAI's streams, those of ours tell themselves that a window is full: Codex looks for it there alone."""
        return super().takes_failure(error) or error.reason is Reason.CONTEXT_EXCEEDED

    def write_packed(self, packed: bytes) -> None:
        if self.is_padded:
            super().write_packed(packed)
            return
        self._writer.write(self._events.texts(packed[PACKED_HEAD_BYTES:].split(SEPARATOR)))

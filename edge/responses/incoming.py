"""A chat in OpenAI's Responses: its body becomes that of a chat, and its pieces leave as events of a response."""

from edge.billing.hold import ChatHold
from edge.chat.reply import Reply
from edge.http.converted_chat import ConvertedChat, ConvertedStream
from edge.http.replies import WholeHttpReply
from edge.responses.events import GatheredResponse, ResponseEvents
from edge.responses.request import ConvertedRequest, convert_request, rename_param
from edge.responses.response_json import ResponseObject
from edge.wire.chat_request import ChatBody
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_RESPONSES
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY_WRITER


class ResponseChat(ConvertedChat):
    api = CHAT_API_RESPONSES
    name_param = staticmethod(rename_param)
    _request: ConvertedRequest

    async def convert(self, body: bytes, *, may_search: bool) -> bytes:
        self._request = await convert_request(body, may_search=may_search)
        return self._request.chat_json

    def open_reply(self, body: ChatBody, hold: ChatHold) -> Reply:
        clock, request = self._edge.clock, self._request
        ignored = (*request.ignored, *body.ignored)
        created_s = int(clock.now().timestamp())
        response = ResponseObject(
            self.request_id, created_s, hold.class_id, request.settings, lambda: clock.now().timestamp()
        )
        if not body.stream:
            return WholeHttpReply(self._send, GatheredResponse(response, request.tools, request.reasoning), ignored)
        events = ResponseEvents(response, request.tools, request.reasoning)
        return ResponseReply(self._send, events, ignored, self.scope[BODY_WRITER], self._edge.keepalive_s)


class ResponseReply(ConvertedStream):
    def takes_failure(self, error: LegatoError) -> bool:
        """As OpenAI's streams, those of ours tell themselves that a window is full: Codex looks for it there alone."""
        return super().takes_failure(error) or error.reason is Reason.CONTEXT_EXCEEDED

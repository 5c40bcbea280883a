"""POST /v1/messages, as the OpenAPI document describes it, and POST /v1/messages/count_tokens."""

from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Request, Response, Security
from pydantic import BaseModel

from edge.api.access import ChatKey, Edge, identified_key
from edge.api.chat import CHAT_ERRORS, JSON
from edge.api.description import RATE_HEADERS, REQUEST_ID, ErrorShape, errors, example_values, header_refs
from edge.backends.auth import Principal
from edge.chat.token_count import count_tokens
from edge.messages.errors import MESSAGES_PATH, error_object, request_id_header
from edge.messages.events import MessageEvents
from edge.messages.message_json import MessageForm
from edge.messages.request import render_chat
from edge.messages.whole_message import WholeMessage
from edge.wire.answer_ids import MESSAGE_PREFIX
from edge.wire.body_reader import read_body
from legato_protos.router.v1.router_pb2 import ChatResponse, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.body_progress import TimedReceive
from services.chassis.sentence import Sentence

router = APIRouter(prefix=MESSAGES_PATH, tags=["Messages"])


class MessageError(BaseModel):
    """An error. Programs should use `code`; `param` is the field that caused the error, if any."""

    type: str
    message: str
    param: str | None
    code: str | None


class MessageErrorBody(BaseModel):
    """The shape of every error of these endpoints: that of Anthropic's API."""

    type: str
    error: MessageError
    request_id: str


class TokenCount(BaseModel):
    """The size of a prompt."""

    input_tokens: int


_SHAPE: Final = ErrorShape(MessageErrorBody, lambda error: error_object(error, REQUEST_ID))
_MESSAGE_ID: Final = f"{MESSAGE_PREFIX}{REQUEST_ID}"
_USAGE: Final = Usage(prompt_tokens=11, completion_tokens=7)
_TEXT: Final = ChatResponse(contents=["Not before the evening."], prompt_tokens=11)
_CALLED: Final = ChatResponse(tool_calls=[ToolCallDelta(id="call_1", name="forecast", arguments='{"place":"Bern"}')])
_QUESTION: Final = {"model": "mezzo", "max_tokens": 200, "messages": [{"role": "user", "content": "Will it rain?"}]}
_TOOL: Final = {
    "name": "forecast",
    "description": "The weather of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}


def _whole(response: ChatResponse, finish_reason: str) -> object:
    message = WholeMessage(_MESSAGE_ID, "mezzo", MessageForm())
    message.add(response)
    return msgspec.json.decode(message.render(finish_reason, _USAGE))


def _events() -> dict[str, object]:
    """Returns the events of a stream."""
    events = MessageEvents(_MESSAGE_ID, "mezzo", REQUEST_ID, MessageForm())
    stream = events.opening(_TEXT) + events.deltas(_TEXT) + events.closing("stop", _USAGE)
    fields = [event.split("\n") for event in stream.decode().split("\n\n") if event]
    return {
        f"event_{number}": {"event": kind.removeprefix("event: "), "data": data.removeprefix("data: ")}
        for number, (kind, data) in enumerate(fields)
    }


_KINDS: Final = (
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "ping", "error",
)  # fmt: skip
_EVENT: Final = {
    "description": "An event of Anthropic's streams. Its data is JSON; `error` is the last event of a stream that "
    "failed, and `ping` keeps the connection open while the model is silent.",
    "type": "object",
    "properties": {
        "event": {"enum": [*_KINDS]},
        "data": {"type": "string", "contentMediaType": JSON},
    },
    "required": ["event", "data"],
}
_REF: Final = "#/components/schemas/"
_REQUEST: Final = {"$ref": f"{_REF}MessagesRequest"}
_ANSWER: Final = {
    "description": "The answer.",
    "headers": header_refs(*RATE_HEADERS, "request-id", "x-legato-max-tokens", "x-legato-attempt", "x-legato-ignored"),
    "content": {
        JSON: {
            "schema": {"$ref": f"{_REF}MessageAnswer"},
            "examples": example_values({"answer": _whole(_TEXT, "stop"), "tool_use": _whole(_CALLED, "tool_calls")}),
        },
        "text/event-stream": {"schema": _EVENT, "examples": example_values(_events())},
    },
}


def _body(**examples: object) -> dict[str, object]:
    return {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": _REQUEST, "examples": example_values(examples)}},
        }
    }


@router.post(
    "",
    summary="Create a message",
    operation_id="createMessage",
    openapi_extra=_body(whole=_QUESTION, streamed={**_QUESTION, "stream": True}, tools={**_QUESTION, "tools": [_TOOL]}),
    responses={200: _ANSWER, **errors(*CHAT_ERRORS, headers=(*RATE_HEADERS, "request-id"), shape=_SHAPE)},
    response_model=None,
)
async def create_message(
    principal: Annotated[Principal, Security(identified_key, scopes=["inference"])],
    anthropic_beta: Annotated[
        str | None, Header(description="Names of betas. Those that are not known are named in `x-legato-ignored`.")
    ] = None,
) -> None:
    """The same chat in the form of Anthropic's Messages: it is admitted, held, charged and limited as a chat
    completion. The service is stateless: all messages come with each request."""
    # Only for a path that is taken for this one, such as one with a line feed at its end.
    raise LegatoError(Reason.NOT_FOUND, Sentence("endpoint_unknown"))


@router.post(
    "/count_tokens",
    summary="Count the tokens of a message's prompt",
    operation_id="countMessageTokens",
    openapi_extra=_body(question=_QUESTION),
    responses={
        200: {"headers": header_refs("request-id")},
        **errors(
            Reason.MODEL_UNKNOWN,
            Reason.BODY_TOO_LARGE,
            Reason.ENCODING_NOT_SUPPORTED,
            Reason.SATURATED,
            headers=("request-id",),
            shape=_SHAPE,
        ),
    },
)
async def count_message_tokens(request: Request, response: Response, principal: ChatKey, edge: Edge) -> TokenCount:
    """Counts the prompt with the character, as the first model of the class usually does. It costs nothing, and takes
    a request from the key's rate limit."""
    response.raw_headers += request_id_header(request.state.request_id)
    with edge.prompt_memory.hold(principal.account_id) as memory:
        body = await read_body(request.scope, TimedReceive(request.receive), memory)
        rendered = await render_chat(body)
        return TokenCount(input_tokens=await count_tokens(edge, principal, rendered.take_body(), memory))

"""POST /v1/responses: its description in the OpenAPI document."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Security

from edge.api.access import identified_key
from edge.api.chat import CHAT_ERRORS, JSON, schema_ref
from edge.api.description import RATE_HEADERS, REQUEST_ID, errors, example_values, header_refs
from edge.api.dialects import RESPONSES_PATH
from edge.backends.auth import Principal
from edge.responses.events import GatheredResponse, ResponseEvents
from edge.responses.fields import ResponseBody
from edge.responses.response_items import ReasoningForm
from edge.responses.response_json import ResponseObject, settings_of
from edge.responses.tools import OfferedTools
from legato_protos.router.v1.router_pb2 import ChatResponse, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

router = APIRouter(tags=["Responses"])

_ASKED: Final = {"model": "mezzo", "input": "Will it rain?", "store": False}
_ASKED_WITH_TOOLS: Final = {
    "model": "forte",
    "stream": True,
    "instructions": "Answer briefly.",
    "input": [{"role": "user", "content": "Will it rain in Bern?"}],
    "tools": [
        {
            "type": "function",
            "name": "forecast",
            "description": "The weather of a place.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
            "strict": False,
        }
    ],
}
_CREATED_S: Final = 1763294400
_USAGE: Final = Usage(prompt_tokens=11, completion_tokens=7)
_SETTINGS: Final = settings_of(ResponseBody())
_CALL: Final = ToolCallDelta(id="call_1", name="forecast", arguments='{"place":"Bern"}')


def _object(class_id: str) -> ResponseObject:
    return ResponseObject(REQUEST_ID, _CREATED_S, class_id, _SETTINGS, lambda: _CREATED_S + 1)


def _whole(class_id: str, piece: ChatResponse) -> Any:
    whole = GatheredResponse(_object(class_id), OfferedTools(), ReasoningForm())
    whole.add(piece)
    return msgspec.json.decode(whole.render("stop", _USAGE))


def _events(class_id: str, piece: ChatResponse) -> list[str]:
    """Returns the data of each event of a stream."""
    events = ResponseEvents(_object(class_id), OfferedTools(), ReasoningForm())
    stream = events.opening(piece) + events.deltas(piece) + events.closing("stop", _USAGE)
    return [event.partition("data: ")[2] for event in stream.decode().split("\n\n") if event]


EVENTS: Final = _events("forte", ChatResponse(contents=["A chase."]))
_EVENT: Final = {
    "description": "An event, whose name is its type. The last is `response.completed`, `response.incomplete` or, "
    "after `error`, `response.failed`. Comments keep the connection open while the model is silent.",
    "type": "object",
    "properties": {
        "data": {
            "type": "string",
            "contentMediaType": JSON,
            "contentSchema": schema_ref("ResponseEvent"),
        },
        "event": {"type": "string"},
    },
    "required": ["data", "event"],
}
_ANSWER: Final = {
    "description": "The answer.",
    "headers": header_refs(*RATE_HEADERS, "x-legato-max-tokens", "x-legato-attempt", "x-legato-ignored"),
    "content": {
        JSON: {
            "schema": schema_ref("Response"),
            "examples": example_values(
                {
                    "answer": _whole("mezzo", ChatResponse(contents=["Not before the evening."])),
                    "tool_call": _whole("forte", ChatResponse(tool_calls=[_CALL])),
                }
            ),
        },
        "text/event-stream": {
            "schema": _EVENT,
            "examples": example_values(
                {
                    f"event_{number}": {"data": data, "event": msgspec.json.decode(data)["type"]}
                    for number, data in enumerate(EVENTS)
                }
            ),
        },
    },
}
_BODY: Final = {
    "required": True,
    "content": {
        JSON: {
            "schema": schema_ref("ResponseRequest"),
            "examples": example_values({"whole": _ASKED, "tools": _ASKED_WITH_TOOLS}),
        }
    },
}


@router.post(
    RESPONSES_PATH,
    summary="Create a response",
    operation_id="createResponse",
    openapi_extra={"requestBody": _BODY},
    responses={200: _ANSWER, **errors(*CHAT_ERRORS, headers=RATE_HEADERS)},
    response_model=None,
)
async def create_response(
    principal: Annotated[Principal, Security(identified_key, scopes=["inference"])],
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern="^[!-~]{1,255}$",
            description="A retry with the same key is not served or charged again.",
        ),
    ] = None,
) -> None:
    """Answers as one JSON object or, with `stream`, as typed server-sent events. Nothing is stored: every request has
    the whole conversation. It is charged and limited like a chat completion."""
    # Only for a path that is taken for this one, such as one with a line feed at its end.
    raise LegatoError(Reason.NOT_FOUND, Sentence("endpoint_unknown"))

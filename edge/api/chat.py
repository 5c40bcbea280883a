"""POST /v1/chat/completions: its route, and its description in the OpenAPI document."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Security
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from edge.api import chat_examples as examples
from edge.api.access import identified_key
from edge.api.description import RATE_HEADERS, errors, example_values, header_refs
from edge.api.http_chat import HttpChat
from edge.backends.auth import Principal
from services.chassis.errors import Reason

CHAT_PATH: Final = "/v1/chat/completions"
JSON: Final = "application/json"


class ChatRoute(APIRoute):
    """Hands the connection itself to `ChatEndpoint`, which reads the body and writes the chunks as bytes. The function
    that is decorated is not called: it declares what the OpenAPI document says. Binding its parameters would cost a
    chat more than the rest of FastAPI."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            state = scope["app"].state
            await state.chat.serve(HttpChat(state.edge, scope, receive, send))
        else:
            await super().handle(scope, receive, send)


router = APIRouter(route_class=ChatRoute, tags=["Chat"])


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_EVENT: Final = {
    "description": "An event. Its data is a ChatCompletionChunk, `[DONE]` in the last event, or an error, which is "
    "then the last. Comments keep the connection open while the model is silent.",
    "type": "object",
    "properties": {
        "data": {
            "anyOf": [
                {"const": "[DONE]"},
                {
                    "type": "string",
                    "contentMediaType": JSON,
                    "contentSchema": {"anyOf": [_schema("ChatCompletionChunk"), _schema("ErrorBody")]},
                },
            ]
        },
        "event": {"const": "message"},
    },
    "required": ["data"],
}
_EVENTS: Final = {
    **{f"chunk_{number}": {"data": chunk} for number, chunk in enumerate(examples.CHUNKS)},
    "done": {"data": examples.DONE},
}
_ANSWER: Final = {
    "description": "The answer.",
    "headers": header_refs(*RATE_HEADERS, "x-legato-max-tokens", "x-legato-attempt", "x-legato-ignored"),
    "content": {
        JSON: {
            "schema": _schema("ChatCompletion"),
            "examples": example_values(
                {"answer": examples.COMPLETION, "tool_call": examples.COMPLETION_WITH_TOOL_CALL}
            ),
        },
        "text/event-stream": {"schema": _EVENT, "examples": example_values(_EVENTS)},
    },
}
_BODY: Final = {
    "required": True,
    "content": {
        JSON: {
            "schema": _schema("ChatRequest"),
            "examples": example_values(
                {"whole": examples.CHAT, "streamed": examples.STREAMED_CHAT, "tools": examples.CHAT_WITH_TOOLS}
            ),
        }
    },
}
_ERRORS: Final = errors(
    Reason.MODEL_UNKNOWN,
    Reason.CONTEXT_EXCEEDED,
    Reason.IDEMPOTENCY_KEY_REUSED,
    Reason.CREDITS_EXHAUSTED,
    Reason.REQUEST_REPEATED,
    Reason.REQUEST_RESOLVED,
    Reason.BODY_TOO_LARGE,
    Reason.ENCODING_NOT_SUPPORTED,
    Reason.TOO_MANY_AT_ONCE,
    Reason.CREDITS_HELD,
    Reason.SPEND_LIMIT_EXCEEDED,
    Reason.SPEND_LIMIT_SPENT,
    Reason.SATURATED,
    Reason.UPSTREAM_FAILED,
    Reason.UPSTREAM_REFUSED,
    Reason.CONTENT_POLICY,
    Reason.MAINTENANCE,
    headers=RATE_HEADERS,
)


@router.post(
    CHAT_PATH,
    summary="Create a chat completion",
    operation_id="createChatCompletion",
    openapi_extra={"requestBody": _BODY},
    responses={200: _ANSWER, **_ERRORS},
    response_model=None,
)
async def create_chat_completion(
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
    """Answers as one JSON object or, with `stream`, as server-sent events. An error after the first event of a stream
    is one event, `data: {"error": {...}}`, which ends the stream without `[DONE]`."""

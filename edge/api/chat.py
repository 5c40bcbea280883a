"""POST /v1/chat/completions: who serves it, and its description in the OpenAPI document."""

from collections.abc import Awaitable
from typing import Annotated, Final

from fastapi import APIRouter, Header, Security
from starlette.types import ASGIApp, Receive, Scope, Send

from edge.api import chat_examples as examples
from edge.api.access import identified_key
from edge.api.description import RATE_HEADERS, errors, example_values, header_refs
from edge.api.dialects import CHATS, COMPLETIONS_PATH
from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from edge.chat.endpoint import ChatEndpoint
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

JSON: Final = "application/json"


class ChatMiddleware:
    """Hands the connection of a chat to `ChatEndpoint`, which reads the body and writes the chunks as bytes. FastAPI's
    search for a route and its stacks for errors and dependencies would cost a chat 15 µs. The endpoint below declares
    what the OpenAPI document says."""

    def __init__(self, app: ASGIApp, edge: EdgeState) -> None:
        self._app = app
        self._edge = edge
        self._endpoint = ChatEndpoint(edge)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        chat = CHATS.get(scope["path"])
        if chat is not None and scope["method"] == "POST":
            return self._endpoint.serve(chat(self._edge, scope, receive, send))
        return self._app(scope, receive, send)


router = APIRouter(tags=["Chat"])


def schema_ref(name: str) -> dict[str, str]:
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
                    "contentSchema": {"anyOf": [schema_ref("ChatCompletionChunk"), schema_ref("ErrorBody")]},
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
            "schema": schema_ref("ChatCompletion"),
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
            "schema": schema_ref("ChatRequest"),
            "examples": example_values(
                {"whole": examples.CHAT, "streamed": examples.STREAMED_CHAT, "tools": examples.CHAT_WITH_TOOLS}
            ),
        }
    },
}
CHAT_ERRORS: Final = (
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
)


@router.post(
    COMPLETIONS_PATH,
    summary="Create a chat completion",
    operation_id="createChatCompletion",
    openapi_extra={"requestBody": _BODY},
    responses={200: _ANSWER, **errors(*CHAT_ERRORS, headers=RATE_HEADERS)},
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
    # Only for a path that is taken for this one, such as one with a line feed at its end.
    raise LegatoError(Reason.NOT_FOUND, Sentence("endpoint_unknown"))

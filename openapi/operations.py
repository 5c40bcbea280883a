"""Descriptions of the endpoints: parameters, bodies and headers, in addition to the route table."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from edge.api.usage import GROUPS, LATEST_S, WIDTHS
from openapi import examples, responses
from openapi.requests import ChatRequest


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    tag: str
    summary: str
    description: str = ""
    parameters: list[dict[str, Any]] = field(default_factory=list)
    request: type[msgspec.Struct] | None = None
    request_examples: dict[str, Any] = field(default_factory=dict)
    # None: no successful response, or one of any shape.
    response: type[msgspec.Struct] | None = None
    response_examples: dict[str, Any] = field(default_factory=dict)
    is_streamed: bool = False
    # Headers of successful responses, in addition to x-request-id.
    headers: tuple[str, ...] = ()


def _query(name: str, schema: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema, **more}


def _path(name: str, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
        "example": example,
    }


RATE_HEADERS: Final = tuple(
    f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)

_TIME: Final = {"type": "integer", "minimum": 0, "maximum": LATEST_S}

OPERATIONS: Final = {
    ("POST", "/v1/chat/completions"): Operation(
        "createChatCompletion",
        "Chat",
        "Create a chat completion",
        "Answers as one JSON object or, with `stream`, as server-sent events. An error after the first event of a "
        'stream is one event, `data: {"error": {...}}`, which ends the stream without `[DONE]`.',
        parameters=[
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A retry with the same key is not served or charged again.",
                "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
            }
        ],
        request=ChatRequest,
        request_examples={
            "whole": examples.CHAT,
            "streamed": examples.STREAMED_CHAT,
            "tools": examples.CHAT_WITH_TOOLS,
        },
        response=responses.ChatCompletion,
        response_examples={"answer": examples.COMPLETION, "tool_call": examples.COMPLETION_WITH_TOOL_CALL},
        is_streamed=True,
        headers=(*RATE_HEADERS, "x-legato-max-tokens", "x-legato-attempt", "x-legato-ignored"),
    ),
    ("GET", "/v1/models"): Operation(
        "listModels",
        "Models",
        "List the classes that the key may use",
        "Without a limit of the key or its account these are all classes.",
        response=responses.ModelList,
        response_examples={"classes": examples.MODELS},
    ),
    ("GET", "/v1/models/{model_id}"): Operation(
        "getModel",
        "Models",
        "Describe a class",
        "A class that the key may not use does not exist for it.",
        parameters=[_path("model_id", "The class.", "mezzo")],
        response=responses.Model,
        response_examples={"class": examples.MODEL},
    ),
    ("GET", "/v1/usage"): Operation(
        "getUsage",
        "Usage",
        "Read tokens and cost of the key's own account",
        "Buckets are whole, so the first and the last may extend beyond the requested period. The default is "
        "the last 24 hours.",
        parameters=[
            _query("start_time", _TIME, "Seconds since 1970."),
            _query("end_time", _TIME, "Seconds since 1970; after `start_time`."),
            _query("bucket_width", {"enum": [*WIDTHS], "default": "1h"}, "An hour or a day, in UTC."),
            _query(
                "group_by",
                {"type": "array", "items": {"enum": [*GROUPS]}},
                "Repeated, separated by commas, or as `group_by[]`.",
                style="form",
                explode=True,
            ),
            _query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": max(width.most for width in WIDTHS.values())},
                "Buckets per page. The maximum, which is also the default, is 168 hours or 31 days.",
            ),
            _query("page", {"type": "string", "pattern": "^[0-9]{1,12}$"}, "The `next_page` of the previous page."),
        ],
        response=responses.UsagePage,
        response_examples={"day": examples.USAGE_PAGE},
    ),
    ("GET", "/v1/usage/requests/{request_id}"): Operation(
        "getUsageRequest",
        "Usage",
        "Get the state and cost of one request",
        parameters=[
            _path("request_id", "The `x-request-id` of a response, or the id of its completion.", examples.REQUEST_ID)
        ],
        response=responses.UsageRequest,
        response_examples={"settled": examples.USAGE_REQUEST},
    ),
    ("GET", "/openapi.json"): Operation("getOpenapi", "Description", "Read this document", "Needs no key."),
    ("POST", "/v1/embeddings"): Operation("createEmbedding", "Not offered", "Refused: embeddings are not offered"),
    ("POST", "/v1/completions"): Operation("createCompletion", "Not offered", "Refused: use chat completions"),
    ("POST", "/v1/responses"): Operation("createResponse", "Not offered", "Refused: use chat completions"),
}

"""The edge as a FastAPI application: its routers, its middleware and its one exception handler."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from edge.api import chat, messages, models, not_offered, openapi, responses, usage
from edge.api.cors import EdgeCorsMiddleware
from edge.api.errors import UnexpectedErrorMiddleware, answer_error
from edge.chat.edge_state import EdgeState
from edge.wire.origins import ANY_ORIGIN
from services.chassis.errors import LegatoError
from services.chassis.http.request_id import RequestIdMiddleware

_CHATS: Final = (chat.router, messages.router, responses.router)
ROUTERS: Final = (*_CHATS, models.router, usage.router, openapi.router, not_offered.router)

# FastAPI's own logs quote exceptions, which may quote messages, and its traces would double ours.
_NO_TELEMETRY: Final[Any] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


class EdgeApp(FastAPI):
    def __init__(self, edge: EdgeState, origins: Sequence[str] = (ANY_ORIGIN,), *, has_docs: bool = True) -> None:
        super().__init__(openapi_url=None, redirect_slashes=False, telemetry=_NO_TELEMETRY)
        self.state.edge = edge
        for router in ROUTERS:
            self.include_router(router)
        if has_docs:
            self.include_router(openapi.docs_router)
            self.mount("/docs/assets", openapi.docs_assets())
        for kind in (LegatoError, HTTPException, RequestValidationError):
            self.add_exception_handler(kind, answer_error)
        # The last one is the outermost.
        self.add_middleware(chat.ChatMiddleware, edge=edge)
        self.add_middleware(UnexpectedErrorMiddleware)
        self.add_middleware(EdgeCorsMiddleware, origins=origins)
        self.add_middleware(RequestIdMiddleware)

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document, which is made once."""
        if self.openapi_schema is None:
            document = openapi.describe(self)
            self.state.openapi_json = msgspec.json.encode(document)
            self.openapi_schema = document
        return self.openapi_schema

"""GET /openapi.json and /docs: the API described by the application itself, and a page to try it out."""

import asyncio
import base64
import hashlib
import importlib.metadata
import re
from typing import Any, Final

import msgspec
from fastapi import APIRouter, FastAPI, Request
from fastapi import Response as HttpResponse
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.staticfiles import StaticFiles

from edge.api.chat_schema import ChatCompletion, ChatCompletionChunk, ChatRequest
from edge.api.description import HEADERS, NULL, errors, header_refs, replace_in
from edge.api.messages_schema import MessageAnswer, MessagesRequest
from edge.api.response_schema import Response, ResponseEvent, ResponseRequest
from services.chassis.http.security_headers import security_headers

_REF: Final = "#/components/schemas/{name}"
# FastAPI's own description of a wrong parameter, which is an ordinary error here.
_VALIDATION_STATUS: Final = "422"
_VALIDATION_SCHEMAS: Final = ("HTTPValidationError", "ValidationError")
_ASSETS: Final = "/docs/assets"
# The bodies of chats, in each dialect.
_STRUCTS: Final = (
    ChatRequest,
    ChatCompletion,
    ChatCompletionChunk,
    MessagesRequest,
    MessageAnswer,
    ResponseRequest,
    Response,
    ResponseEvent,
)

router = APIRouter()
docs_router = APIRouter(include_in_schema=False)


@router.get(
    "/openapi.json",
    summary="Read this document",
    operation_id="getOpenapi",
    tags=["Description"],
    responses={200: {"headers": header_refs()}, **errors(needs_key=False, needs_scope=False)},
)
async def get_openapi_document(request: Request) -> HttpResponse:
    """Needs no key."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        # It takes a tenth of a second, which other requests must not wait for.
        await asyncio.to_thread(app.openapi)
    return HttpResponse(app.state.openapi_json, media_type="application/json")


def describe(app: FastAPI) -> dict[str, Any]:
    """Builds the document from the application's routes, and from the structs that a chat is parsed with."""
    document = get_openapi(
        title="Legato",
        summary="Chat completions in OpenAI's wire format.",
        version=importlib.metadata.version("legato"),
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "The edge that serves this document"}],
        routes=app.routes,
    )
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop(_VALIDATION_STATUS, None)
            operation["responses"]["200"].setdefault("headers", header_refs())
            _name_scope(operation)
    components = document["components"]
    for name in _VALIDATION_SCHEMAS:
        components["schemas"].pop(name, None)
    _, structs = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    components["schemas"] = dict(sorted({**components["schemas"], **_without_null_defaults(structs)}.items()))
    components["headers"] = HEADERS
    complete: dict[str, Any] = replace_in(document, NULL, None)
    return complete


def _name_scope(operation: dict[str, Any]) -> None:
    """Adds the scope that the key needs to the description."""
    [scopes] = {tuple(scopes) for needed in operation.get("security", [{"": []}]) for scopes in needed.values()}
    sentences = [operation.get("description", ""), *(f"Needs the scope `{scope}`." for scope in scopes)]
    operation["description"] = " ".join(filter(None, sentences))


def _without_null_defaults(schema: Any) -> Any:
    """Drops null defaults, which msgspec writes and OpenAPI's readers take for a type, and titles."""
    if isinstance(schema, list):
        return [_without_null_defaults(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    is_schema = "properties" in schema or "anyOf" in schema or "type" in schema
    return {
        name: _without_null_defaults(part)
        for name, part in schema.items()
        if not (is_schema and ((name == "title" and isinstance(part, str)) or (name == "default" and part is None)))
    }


@docs_router.get("/docs")
async def get_docs() -> HttpResponse:
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Legato API",
        swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_ASSETS}/favicon-32x32.png",
    )
    [script] = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    page.headers.update(
        security_headers(
            {
                "script-src": f"'self' 'sha256-{digest}'",
                # Swagger UI writes styles into the page.
                "style-src": "'self' 'unsafe-inline'",
                "img-src": "'self' data:",
                "connect-src": "'self'",
                "form-action": "'none'",
            }
        )
    )
    return page


def docs_assets() -> StaticFiles:
    """Returns the files of Swagger UI, which come with a package: no page of ours loads anything from elsewhere."""
    return StaticFiles(packages=[("fastapi_swagger", "resources")])

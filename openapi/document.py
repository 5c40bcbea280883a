"""Builds the OpenAPI document from the route table, the error table and the structs."""

import importlib.metadata
from collections import defaultdict
from http import HTTPStatus
from typing import Any

import msgspec

from edge.api.app import ROUTES, Route
from edge.backends.auth import Scope
from edge.wire.responses import error_body, error_headers
from openapi import responses
from openapi.errors import MESSAGES, reasons_of
from openapi.examples import CHUNKS, REQUEST_ID
from openapi.operations import OPERATIONS, RATE_HEADERS, Operation
from services.chassis.errors import LegatoError, Reason

JSON = "application/json"
EVENTS = "text/event-stream"
_REF = "#/components/{}/{}"

_INTEGER = {"type": "integer", "minimum": 0}
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "x-request-id": ("The id of this request.", {"type": "string", "pattern": "^[0-9a-f]{32}$"}),
    **{
        name: ("The time until the limit is fully replenished, for example `6m0s`.", {"type": "string"})
        if "reset" in name
        else ("The limit per minute, or what remains of it.", _INTEGER)
        for name in RATE_HEADERS
    },
    "x-legato-max-tokens": ("The maximum number of tokens of the answer.", _INTEGER),
    "x-legato-attempt": ("The number of models that were called.", _INTEGER),
    "x-legato-ignored": (
        "Fields that may change an answer, and that the model was called without.",
        {"type": "string"},
    ),
    "retry-after": ("Seconds to wait.", _INTEGER),
    "retry-after-ms": ("Milliseconds to wait.", _INTEGER),
    "x-should-retry": ("`false` where a repeat cannot help.", {"enum": ["false"]}),
    "x-original-request-id": ("The id of the first request with this Idempotency-Key.", {"type": "string"}),
    "allow": ("The methods of this endpoint.", {"type": "string"}),
}
# Headers that errors of a status may have, in addition to those of `error_headers`.
_HEADERS_OF_STATUS = {405: ("allow",), 409: ("x-original-request-id",), 429: ("retry-after", "retry-after-ms")}


def document() -> dict[str, Any]:
    components = _Schemas()
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in ROUTES:
        operation = OPERATIONS[route.method, route.path]
        paths[route.path][route.method.lower()] = _operation(route, operation, components)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Legato",
            "summary": "Chat completions in OpenAI's wire format.",
            "version": importlib.metadata.version("legato"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The edge that serves this document"}],
        "security": [{"bearer": []}, {"apiKey": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in OPERATIONS.values())],
        "paths": dict(paths),
        "components": {
            "schemas": components.schemas(),
            "headers": {
                name: {"description": description, "schema": schema} for name, (description, schema) in _HEADERS.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


class _Schemas:
    """Collects the structs that the document refers to."""

    def __init__(self) -> None:
        self._structs: list[type[msgspec.Struct]] = [responses.ErrorBody, responses.ChatCompletionChunk]

    def ref(self, struct: type[msgspec.Struct]) -> dict[str, str]:
        if struct not in self._structs:
            self._structs.append(struct)
        return {"$ref": _REF.format("schemas", struct.__name__)}

    def schemas(self) -> dict[str, Any]:
        _, found = msgspec.json.schema_components(self._structs, ref_template=_REF.format("schemas", "{name}"))
        schemas: dict[str, Any] = _tidy(found)
        schemas["UnreadObject"] = {"type": "object", "description": "Any object."}
        return dict(sorted(schemas.items()))


def _tidy(schema: Any) -> Any:
    """Drops titles that repeat a schema's name, and null defaults."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    is_schema = "properties" in schema or "anyOf" in schema or "type" in schema
    return {
        name: _tidy(part)
        for name, part in schema.items()
        if not (is_schema and ((name == "title" and isinstance(part, str)) or (name == "default" and part is None)))
    }


def _operation(route: Route, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": " ".join(filter(None, [operation.description, _access(route)])),
        "parameters": operation.parameters,
    }
    if route.is_public:
        described["security"] = []
    if operation.request is not None:
        content = {"schema": schemas.ref(operation.request), "examples": _examples(operation.request_examples)}
        described["requestBody"] = {"required": True, "content": {JSON: content}}
    described["responses"] = {**_good(route, operation, schemas), **_errors(route, schemas)}
    return {name: part for name, part in described.items() if part not in ("", []) or name == "security"}


def _access(route: Route) -> str:
    if route.scope is None:
        return ""
    return f"Needs the scope `{Scope.Name(route.scope).removeprefix('SCOPE_').lower()}`."


def _good(route: Route, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if not route.is_offered:
        return {}
    content: dict[str, Any] = {JSON: {"schema": {"type": "object"}}}
    if operation.response is not None:
        content = {
            JSON: {"schema": schemas.ref(operation.response), "examples": _examples(operation.response_examples)}
        }
    if operation.is_streamed:
        content[EVENTS] = {"schema": _event_schema(schemas), "examples": _examples(_example_events())}
    return {"200": {"description": "Done.", "headers": _header_refs(operation.headers), "content": content}}


def _event_schema(schemas: _Schemas) -> dict[str, Any]:
    """Describes the events of a stream, in the form of later versions of OpenAPI."""
    of_json = {"anyOf": [schemas.ref(responses.ChatCompletionChunk), schemas.ref(responses.ErrorBody)]}
    data = [{"const": "[DONE]"}, {"type": "string", "contentMediaType": JSON, "contentSchema": of_json}]
    return {
        "description": "An event. Its data is a ChatCompletionChunk, `[DONE]` in the last event, or an "
        "error, which then is the last. Comments keep the connection open while the model is silent.",
        "type": "object",
        "properties": {"data": {"anyOf": data}, "event": {"const": "message"}},
        "required": ["data"],
    }


def _example_events() -> dict[str, Any]:
    chunks = {f"chunk_{number}": msgspec.json.encode(chunk).decode() for number, chunk in enumerate(CHUNKS, 1)}
    return {name: {"data": data} for name, data in {**chunks, "done": "[DONE]"}.items()}


def _errors(route: Route, schemas: _Schemas) -> dict[str, Any]:
    by_status: dict[int, dict[str, LegatoError]] = defaultdict(dict)
    for reason in reasons_of(route):
        error = example_error(reason)
        by_status[error.wire.http_status][error.wire.code or reason.lower()] = error
    return {
        str(status): {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{code}`' for code in errors)}.",
            "headers": _header_refs(_error_header_names(route, status, list(errors.values()))),
            "content": {
                JSON: {
                    "schema": schemas.ref(responses.ErrorBody),
                    "examples": _examples({code: msgspec.json.decode(error_body(e)) for code, e in errors.items()}),
                }
            },
        }
        for status, errors in sorted(by_status.items())
    }


def example_error(reason: Reason) -> LegatoError:
    return LegatoError(
        reason,
        MESSAGES[reason],
        param={Reason.REQUEST_INVALID: "messages", Reason.MODEL_UNKNOWN: "model", Reason.MODEL_NOT_FOUND: "model"}.get(
            reason
        ),
        retry_after_s=1 if reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE) else None,
        original_request_id=REQUEST_ID if reason is Reason.REQUEST_REPEATED else None,
    )


def _error_header_names(route: Route, status: int, errors: list[LegatoError]) -> list[str]:
    names = [name.decode() for error in errors for name, _ in error_headers(error)]
    names += _HEADERS_OF_STATUS.get(status, ())
    if route.answers_itself and status != 405:
        names += RATE_HEADERS
    return [*dict.fromkeys(names)]


def _header_refs(names: Any) -> dict[str, Any]:
    return {name: {"$ref": _REF.format("headers", name)} for name in ("x-request-id", *names)}


def _examples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}

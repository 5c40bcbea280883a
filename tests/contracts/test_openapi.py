"""The OpenAPI document that the application makes of itself, against the table of errors and its own examples."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from edge.api.app import EdgeApp
from edge.api.chat_examples import CHUNKS
from edge.api.chat_schema import ChatCompletion, ChatCompletionChunk, ChatRequest
from edge.api.description import EXAMPLES, ErrorBody
from edge.api.messages import MessageErrorBody
from edge.api.messages_schema import MessageAnswer, MessagesRequest
from edge.api.response_schema import Response, ResponseEvent, ResponseRequest
from edge.api.responses import EVENTS
from services.chassis.errors import Reason

DOCUMENT = EdgeApp(cast(Any, None)).openapi()
CHAT = DOCUMENT["paths"]["/v1/chat/completions"]["post"]
RESPONSE = DOCUMENT["paths"]["/v1/responses"]["post"]
MESSAGE = DOCUMENT["paths"]["/v1/messages"]["post"]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_it_is_valid_openapi_3_1() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert DOCUMENT["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(cast(Any, DOCUMENT)).iter_errors()] == []


def test_every_error_of_the_table_is_in_it_and_no_other() -> None:
    shown = []
    for _, path, operation in operations():
        shape = MessageErrorBody if path.startswith("/v1/messages") else ErrorBody
        for status, response in operation["responses"].items():
            if status != "200":
                for example in response["content"]["application/json"]["examples"].values():
                    shape.model_validate(example["value"], extra="forbid")
                    if shape is ErrorBody:
                        shown.append((int(status), example["value"]))
    codes = {(status, body["error"]["type"], body["error"]["code"]) for status, body in shown}
    assert codes == {(wire.http_status, wire.type, wire.code) for wire in (reason.wire for reason in Reason)}
    internal = {reason for reason in Reason if reason.wire.code == Reason.INTERNAL.wire.code}
    assert EXAMPLES.keys() == set(Reason) - internal | {Reason.INTERNAL}


def test_every_operation_but_the_description_needs_a_key_and_names_its_scope() -> None:
    for _, path, operation in operations():
        scopes = {scope for needed in operation.get("security", []) for each in needed.values() for scope in each}
        assert ("security" in operation) == (operation["tags"] != ["Description"]), path
        assert all(f"`{scope}`" in operation["description"] for scope in scopes)


@pytest.mark.parametrize(
    ("content", "struct"),
    [
        (CHAT["requestBody"]["content"], ChatRequest),
        (CHAT["responses"]["200"]["content"], ChatCompletion),
        (RESPONSE["requestBody"]["content"], ResponseRequest),
        (RESPONSE["responses"]["200"]["content"], Response),
        (MESSAGE["requestBody"]["content"], MessagesRequest),
        (MESSAGE["responses"]["200"]["content"], MessageAnswer),
    ],
)
def test_examples_of_chats_are_what_they_show(content: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    examples = content["application/json"]["examples"]
    assert len(examples) >= 2
    for example in examples.values():
        msgspec.convert(example["value"], struct)


def test_examples_of_events_are_what_they_show() -> None:
    for chunk in CHUNKS:
        msgspec.json.decode(chunk, type=ChatCompletionChunk)
    examples = CHAT["responses"]["200"]["content"]["text/event-stream"]["examples"]
    assert [*examples.values()][-1] == {"value": {"data": "[DONE]"}}
    assert len(examples) == len(CHUNKS) + 1


def test_examples_of_a_responses_events_are_what_they_show() -> None:
    found = [msgspec.json.decode(event, type=ResponseEvent) for event in EVENTS]
    assert (found[0].type, found[-1].type) == ("response.created", "response.completed")
    examples = RESPONSE["responses"]["200"]["content"]["text/event-stream"]["examples"]
    assert [example["value"]["event"] for example in examples.values()] == [event.type for event in found]


def test_no_field_is_left_without_a_type() -> None:
    """Fields the edge keeps as bytes have none until `edge/api/chat_schema.py` says what they are."""
    untyped = [
        f"{name}.{field}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if not described.keys() & {"$ref", "anyOf", "const", "enum", "type"}
    ]
    assert untyped == []

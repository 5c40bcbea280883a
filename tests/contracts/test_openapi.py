"""The committed OpenAPI document, against the route table, the table of errors and the structs it is made from."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from edge.api.app import FILE, ROUTES
from edge.backends.auth import Scope
from openapi.__main__ import written
from openapi.errors import MESSAGES, NEVER_SHOWN
from openapi.operations import OPERATIONS
from services.chassis.errors import WIRE, Reason

DOCUMENT: dict[str, Any] = msgspec.json.decode(FILE.read_bytes())


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_committed_document_is_the_one_that_make_openapi_writes() -> None:
    assert FILE.read_bytes() == written(), "it is stale: make openapi"


def test_its_paths_and_methods_are_those_of_the_route_table() -> None:
    assert [(method, path) for method, path, _ in operations()] == [(route.method, route.path) for route in ROUTES]


def test_it_is_valid_openapi_3_1() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert DOCUMENT["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_error_of_the_table_is_in_it_and_no_other() -> None:
    shown = {
        (int(status), example["value"]["error"]["type"], example["value"]["error"]["code"])
        for _, _, operation in operations()
        for status, response in operation["responses"].items()
        if status != "200"
        for example in response["content"]["application/json"]["examples"].values()
    }
    assert shown == {(wire.http_status, wire.type, wire.code) for wire in WIRE.values()}
    assert MESSAGES.keys() | NEVER_SHOWN == set(Reason)


def test_only_public_endpoints_need_no_key_and_others_name_their_scope() -> None:
    by_endpoint = {(method, path): operation for method, path, operation in operations()}
    for route in ROUTES:
        operation = by_endpoint[route.method, route.path]
        assert (operation.get("security") == []) == route.is_public
        if route.scope is not None:
            assert f"`{Scope.Name(route.scope).removeprefix('SCOPE_').lower()}`" in operation["description"]


@pytest.mark.parametrize("endpoint", OPERATIONS, ids=" ".join)
def test_examples_are_what_they_show(endpoint: tuple[str, str]) -> None:
    operation = OPERATIONS[endpoint]
    shown = [(operation.request, operation.request_examples), (operation.response, operation.response_examples)]
    for struct, examples in shown:
        assert (struct is None) == (examples == {})
        for example in examples.values():
            msgspec.convert(example, struct)


def test_every_parameter_of_a_path_is_described() -> None:
    by_endpoint = {(method, path): operation for method, path, operation in operations()}
    for route in ROUTES:
        described = by_endpoint[route.method, route.path].get("parameters", [])
        assert [one["name"] for one in described if one["in"] == "path"] == route.path_parameters


def test_no_field_is_left_without_a_type() -> None:
    """Fields the edge keeps as bytes have none until `openapi/requests.py` says what they are."""
    untyped = [
        f"{name}.{field}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if not described.keys() & {"$ref", "anyOf", "const", "enum", "type"}
    ]
    assert untyped == []

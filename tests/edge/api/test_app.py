"""The endpoints of the application."""

from typing import Any, cast

from fastapi.routing import APIRoute, iter_route_contexts

from edge.api.app import EdgeApp


def test_every_endpoint_that_is_offered_names_a_scope_or_is_public() -> None:
    document = EdgeApp(cast(Any, None)).openapi()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            scopes = [scopes for needed in operation.get("security", []) for scopes in needed.values()]
            assert operation["tags"] in (["Not offered"], ["Description"]) or (all(scopes) and scopes), path


def test_no_path_has_two_endpoints_for_a_method() -> None:
    routes = [each.original_route for each in iter_route_contexts(EdgeApp(cast(Any, None)).routes)]
    methods = [
        (route.path, method) for route in routes if isinstance(route, APIRoute) for method in route.methods or ()
    ]
    assert len(set(methods)) == len(methods)

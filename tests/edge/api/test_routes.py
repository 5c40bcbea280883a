"""The route table, without a service behind it."""

import inspect

import pytest

from edge.api.app import bind_parts
from edge.api.routes import ROUTES, Route, RouteTable
from edge.backends.auth import Scope

PARTS = ("chat", "clock", "metering", "models")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_is_found_by_its_path(route: Route) -> None:
    values = dict.fromkeys(route.path_parameters, "some thing")
    assert RouteTable().find(route.path.format(**values)) == (route, values)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/models/",
        "/v1/models/a/b",
        "/v1/models\n",
        "//v1/models",
        "/V1/models",
        "/v1/usage/requests",
    ],
)
def test_other_paths_have_no_route(path: str) -> None:
    assert RouteTable().find(path) is None


def test_no_path_stands_in_the_table_twice() -> None:
    paths = [route.path for route in ROUTES]
    assert len(set(paths)) == len(paths)


def test_every_endpoint_that_is_offered_names_a_scope_or_is_public() -> None:
    assert [route.path for route in ROUTES if route.is_offered and not route.is_public and route.scope is None] == []


def test_handlers_take_only_what_can_be_given_to_them() -> None:
    bound = bind_parts(dict.fromkeys(PARTS))
    assert {name for parts in bound.values() for name in parts} == set(PARTS)


def test_a_handler_that_names_something_unknown_is_refused_at_the_start() -> None:
    async def lost(*, weather: str) -> None: ...

    route = Route("GET", "/v1/weather", Scope.SCOPE_MODELS, lost)
    with pytest.raises(TypeError, match="GET /v1/weather: unknown parameters: weather"):
        bind_parts(dict.fromkeys(PARTS), [route])


def test_handlers_name_all_they_take() -> None:
    for route in ROUTES:
        kinds = {parameter.kind for parameter in inspect.signature(route.handler).parameters.values()}
        assert kinds <= {inspect.Parameter.KEYWORD_ONLY}

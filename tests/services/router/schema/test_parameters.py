"""The client's wishes for its answer, as stated."""

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.schema.parameters import KnownParameters, Parameters


def test_nothing_said_is_nothing_wanted() -> None:
    parameters = Parameters()
    assert parameters.known == KnownParameters()
    assert (parameters.known.stops, parameters.known.response_format.answer_schema) == ([], None)
    assert (parameters.fields, parameters.wants_one_call) == ({}, False)


@pytest.mark.parametrize(("stop", "stops"), [("a", ["a"]), (["a", "b"], ["a", "b"])])
def test_one_stop_is_a_list_of_one(stop: str | list[str], stops: list[str]) -> None:
    assert Parameters(msgspec.json.encode({"stop": stop})).known.stops == stops


@pytest.mark.parametrize(
    "parameters",
    [
        b'{"response_format":{"type":"json_schema","json_schema":"x"}}',
        b'{"response_format":"json"}',
        b'{"parallel_tool_calls":"no"}',
        b"[",
        b'{"response_format":' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_the_clients_mistake(parameters: bytes) -> None:
    with pytest.raises(LegatoError) as refusal:
        _ = Parameters(parameters).known
    assert refusal.value.reason == "REQUEST_INVALID"


def test_parameters_are_parsed_once_and_unknown_ones_kept() -> None:
    parameters = Parameters(b'{"temperature":0.50,"ignore_eos":true}')
    assert parameters.known is parameters.known
    assert parameters.fields is parameters.fields
    assert {name: bytes(value) for name, value in parameters.fields.items()} == {
        "temperature": b"0.50",
        "ignore_eos": b"true",
    }


@pytest.mark.parametrize(("given", "wants_one"), [(b"false", True), (b"true", False), (b"null", False)])
def test_one_call_at_a_time_is_wanted_only_if_said(given: bytes, wants_one: bool) -> None:
    assert Parameters(b'{"parallel_tool_calls":' + given + b"}").wants_one_call == wants_one

"""The client's wishes for its answer, as stated."""

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.translation.parameters import Parameters, read_parameters


def test_nothing_said_is_nothing_wanted() -> None:
    assert read_parameters(b"") == Parameters()
    assert (read_parameters(b"").stops, read_parameters(b"").response_format.schema) == ([], None)


@pytest.mark.parametrize(("stop", "stops"), [("a", ["a"]), (["a", "b"], ["a", "b"])])
def test_one_stop_is_a_list_of_one(stop: str | list[str], stops: list[str]) -> None:
    assert read_parameters(msgspec.json.encode({"stop": stop})).stops == stops


@pytest.mark.parametrize(
    "parameters",
    [
        b'{"response_format":{"type":"json_schema","json_schema":"x"}}',
        b'{"parallel_tool_calls":"no"}',
        b"[",
        b'{"response_format":' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_the_clients_mistake(parameters: bytes) -> None:
    with pytest.raises(LegatoError) as refusal:
        read_parameters(parameters)
    assert refusal.value.reason == "REQUEST_INVALID"

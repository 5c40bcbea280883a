"""Names what we rely on in uvicorn's private classes, so that an upgrade that changes them is noticed."""

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

OVERRIDDEN: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "connection_made",
        "connection_lost",
        "data_received",
        "on_message_begin",
        "on_url",
        "on_header",
        "on_headers_complete",
        "on_body",
        "on_message_complete",
        "on_response_complete",
        "pause_writing",
        "resume_writing",
        "shutdown",
        "_start_asgi_task",
    ),
    RequestResponseCycle: ("receive", "send"),
    uvicorn.Server: ("capture_signals",),
}
PARAMETERS: dict[type, set[str]] = {
    RequestResponseCycle: {
        "scope",
        "transport",
        "flow",
        "logger",
        "access_logger",
        "access_log",
        "default_headers",
        "message_event",
        "expect_100_continue",
        "keep_alive",
        "on_response",
    },
    FlowControl: {"transport"},
}


@pytest.mark.parametrize(("base", "names"), OVERRIDDEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_method_that_we_override_is_still_there(base: type, names: tuple[str, ...]) -> None:
    assert [name for name in names if not callable(getattr(base, name, None))] == []


@pytest.mark.parametrize(("base", "names"), PARAMETERS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_parameter_that_we_give_is_still_taken(base: type, names: set[str]) -> None:
    assert set(inspect.signature(base).parameters) == names

import socket
from pathlib import Path

import pytest

from console.process_status import ProcessAddress, parse_addresses, quantile, read_processes
from console.settings import ConsoleServerSettings
from services.chassis.settings import SettingsError, load
from services.chassis.telemetry.http_port import serve_operations, version
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry


def test_addresses_are_parsed() -> None:
    parsed = parse_addresses(" edge=edge:9090, auth=unix:/run/auth-http.sock ,")
    assert parsed == [ProcessAddress("edge", "edge:9090"), ProcessAddress("auth", "unix:/run/auth-http.sock")]


@pytest.mark.parametrize("given", ["edge", "edge=9090", "edge=host:0", "edge=host:70000", "=h:1", "Ed ge=h:1"])
def test_an_address_that_is_none_is_named_at_start(given: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_CONSOLE_STATUS_ADDRESSES"):
        load(ConsoleServerSettings, {"LEGATO_CONSOLE_STATUS_ADDRESSES": given})


async def test_a_process_is_read_on_a_socket_and_on_tcp(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.process_status.READ_WITHIN_S", 60.0)
    registry = Registry()
    registry.gauge("legato_live_streams", "Running chats.", lambda: 7)
    family = registry.histograms("seconds", "Durations.", (0.1, 1.0), "class")
    for value in (0.05, 0.5, 0.6, 3.0):
        family["forte",].observe(value)
    missing: list[str] = []
    listen = f"unix:{socket_folder}/edge-http.sock"
    async with (
        serve_operations(listen, registry, log, lambda: missing),
        serve_operations("127.0.0.1:0", registry, log, lambda: ["auth", "router"]) as port,
    ):
        addresses = [ProcessAddress("edge-1", listen), ProcessAddress("edge-2", port)]
        ready, waiting = await read_processes(addresses)
        assert (ready.answers, ready.missing, ready.version) == (True, "", version())
        assert ready.total("legato_live_streams") == 7
        assert waiting.missing == "auth, router"
        assert quantile([ready, waiting], "seconds", 0.5) == 1.0
        assert quantile([ready], "nothing", 0.5) is None
    # The next one finds the socket of the last.
    async with serve_operations(listen, registry, log):
        [again] = await read_processes(addresses[:1])
        assert again.answers


async def test_what_does_not_answer_is_listed_all_the_same(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.process_status.READ_WITHIN_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        # Connections wait there, and none is accepted.
        silent.bind(f"{socket_folder}/silent.sock")
        silent.listen()
        states = await read_processes(
            [
                ProcessAddress("edge", f"unix:{socket_folder}/nothing.sock"),
                ProcessAddress("auth", f"unix:{socket_folder}/silent.sock"),
                ProcessAddress("router", "127.0.0.1:1"),
            ]
        )
    assert [(state.name, state.answers) for state in states] == [("edge", False), ("auth", False), ("router", False)]

"""Start, keep and end the whole service. A start takes seconds of CPU time: tests that leave it running share one."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import LEGATO
from tests.support.up import ONE_OF_EACH, ROUTES, Up, pids_that_live
from tests.support.waiting import wait_until

NAMES = ["auth", "edge-1", "metering", "router"]


@pytest.fixture
def data(socket_folder: Path) -> Path:
    return socket_folder / "data"


@pytest.fixture
def up(data: Path) -> Iterator[Up]:
    service = Up(data)
    yield service
    service.close()


def status_without_key(address: str) -> int:
    try:
        with urllib.request.urlopen(f"{address}/models", timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_it_serves_when_it_says_so_and_is_refused_a_second_time_on_the_same_folder(running: Up) -> None:
    assert status_without_key(running.ready()) == 401
    processes = running.processes()
    assert sorted(processes) == NAMES
    assert {one["health"] for one in processes.values()} == {"serving"}
    assert {one["restarts"] for one in processes.values()} == {0}
    assert isinstance(running.json("accounts", "list"), list)
    second = Up(running.data)
    code, said = second.ended()
    second.close()
    assert code == 1
    assert said.startswith(f"legato: Legato is already running on {running.data}: see `legato status`")
    assert said.count("\n") == 1
    assert {one["health"] for one in running.processes().values()} == {"serving"}


def test_processes_that_are_killed_come_back_and_after_up_itself_the_next_start_takes_over(up: Up, data: Path) -> None:
    address = up.ready()
    first = up.processes()
    account_id = up.json("accounts", "create", "Ada", "--credits", "5.00")["account_id"]
    for name in ("edge-1", "auth"):
        os.kill(first[name]["pid"], signal.SIGKILL)
    wait_until(lambda: {one["health"] for one in up.processes().values()} == {"serving"})
    now = up.processes()
    assert [now[name]["restarts"] for name in NAMES] == [1, 1, 0, 0]
    assert now["edge-1"]["pid"] != first["edge-1"]["pid"]
    assert status_without_key(address) == 401
    up.process.kill()
    said = up.ended()[1]
    assert "edge-1 ended (SIGKILL); restarting it in 0.1 s" in said
    assert "auth ended (SIGKILL); restarting it in 0.1 s" in said

    again = Up(data, "--port", address.rpartition(":")[2].removesuffix("/v1"), is_forked=True)
    try:
        assert again.ready() == address
        assert pids_that_live([one["pid"] for one in now.values()]) == []
        assert again.json("credits", "balance", account_id)["balance_usd"] == "5.00"
        pids = [one["pid"] for one in again.processes().values()]
        assert {one["health"] for one in again.processes().values()} == {"serving"}
        assert again.stop() == 0
        assert again.line() == ""
    finally:
        again.close()
    assert pids_that_live(pids) == []
    assert again.legato("status").exit_code == 3
    assert again.legato("accounts", "list").exit_code == 3


def test_it_goes_on_though_its_output_is_not_read_until_its_terminal_is_closed(up: Up, data: Path) -> None:
    up.stdout.close()
    wait_until(lambda: up.legato("status").exit_code == 0 and "".join(up.stderr).count(" is ready ") == len(NAMES))
    assert up.json("accounts", "create", "Ada")["name"] == "Ada"
    # One that is slow to answer for a moment is not serving in that moment.
    wait_until(lambda: {one["health"] for one in up.processes().values()} == {"serving"})
    processes = up.processes()
    # From the kernel and from the shell.
    up.process.send_signal(signal.SIGHUP)
    up.process.send_signal(signal.SIGHUP)
    code, said = up.ended()
    assert code == 0
    assert said.endswith("stopping ...\n")
    assert "the copy of the audit log is in" in said
    assert pids_that_live([one["pid"] for one in processes.values()]) == []
    assert '"event":"service.stopped"' in (data / "logs" / "auth.log").read_text()


def test_it_starts_where_nothing_is_open(data: Path) -> None:
    routes = data.with_name("routes.toml")
    routes.write_text(ROUTES)
    options = f"--no-console --data {data} --routes {routes} {' '.join(ONE_OF_EACH)}"
    command = f"exec {LEGATO} up {options} <&- >&- 2>&-"
    environ = {**os.environ, "LEGATO_EDGE_PORT": "0"}
    process = subprocess.Popen(["/bin/sh", "-c", command], env=environ)
    try:
        started = (data / "logs" / "edge-1.log", '"event":"edge.started"')
        wait_until(lambda: started[0].exists() and started[1] in started[0].read_text())
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_the_first_start_welcomes_with_a_key_that_works_and_the_next_keeps_it(data: Path) -> None:
    first = Up(data, "--welcome", "--json", is_forked=True)
    try:
        address = json.loads(first.line())["ready"]
        greeting = json.loads(first.line())
        assert greeting["base_url"] == address
        assert greeting["balance_usd"] == "5.00"
        request = urllib.request.Request(f"{address}/models", headers={"x-api-key": greeting["api_key"]})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 200
        assert first.stop() == 0
        # Who tries it out has nothing to lose with a disk yet.
        assert "copy of the audit log" not in "".join(first.stderr)
    finally:
        first.close()
    second = Up(data, "--welcome", "--workers", "2", is_forked=True)
    try:
        address = second.ready()
        assert [second.line(), second.line()] == ["", f"  Base URL      {address}"]
        assert second.line().endswith(f"legato keys create --account {greeting['account_id']} --data {data}")
        assert sorted(second.processes()) == ["auth", "edge-1", "edge-2", "metering", "router"]
        (account,) = second.json("accounts", "list")
        assert (account["account_id"], account["balance_usd"]) == (greeting["account_id"], "5.00")
        request = urllib.request.Request(f"{address}/models", headers={"x-api-key": greeting["api_key"]})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 200
        # As Ctrl-C does.
        second.process.send_signal(signal.SIGINT)
        assert second.ended()[0] == 0
    finally:
        second.close()
    for log in (data / "logs").iterdir():
        assert greeting["api_key"] not in log.read_text()


def run_up(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [LEGATO, "up", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=60,
    )


def test_a_port_in_use_is_one_clear_line(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_up("--data", str(data), "--port", port)
    assert done.returncode == 1
    assert done.stderr == f"legato: port {port} is in use: choose another with --port, or stop what listens there\n"


def test_every_mistake_in_routes_and_prices_is_named_before_anything_starts(data: Path, tmp_path: Path) -> None:
    (tmp_path / "routes.toml").write_text('[providers.a]\nkind = "carrier-pigeon"\n')
    (tmp_path / "prices.toml").write_text('[classes.mezzo]\ninput = "free"\noutput = "1"\n')
    done = run_up(
        "--data", str(data), "--routes", str(tmp_path / "routes.toml"), LEGATO_PRICES=str(tmp_path / "prices.toml")
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert all(line.startswith("legato: ") for line in lines)
    for key in ("providers.a.kind", "classes.fortissimo: is missing", "classes.mezzo.input", "classes.forte"):
        assert any(key in line for line in lines), key
    assert not data.exists()


def test_wrong_settings_of_all_processes_are_named_before_anything_starts(data: Path) -> None:
    done = run_up(
        "--data",
        str(data),
        LEGATO_KEY_PEPPERS="no pepper at all",
        LEGATO_TRACE_RATIO="2",
        LEGATO_AUDIT_INTERVAL_S="1e18",
        LEGATO_PRICES="/nowhere",
    )
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["legato"] * 4
    for name in ("LEGATO_KEY_PEPPERS", "LEGATO_TRACE_RATIO", "LEGATO_AUDIT_INTERVAL_S", "LEGATO_PRICES"):
        assert done.stderr.count(name) == 1
    assert "no pepper at all" not in done.stderr
    assert not data.exists()


@pytest.mark.parametrize(
    ("environ", "code", "reason"),
    [
        (
            {"LEGATO_DATABASE_URL": "postgresql://legato@/nowhere?host=/nonexistent"},
            1,
            "the database cannot be reached",
        ),
        (
            {"LEGATO_TLS_CA": "/nonexistent"},
            2,
            "LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY must be set together",
        ),
    ],
)
def test_a_service_that_cannot_start_is_quoted_on_one_line(
    data: Path, environ: dict[str, str], code: int, reason: str
) -> None:
    service = Up(data, environ=environ, is_forked=True)
    ended = service.ended()
    service.close()
    last = ended[1].splitlines()[-1]
    assert ended[0] == code
    assert last.startswith("legato: ")
    assert " did not start: " in last
    assert reason in last
    assert str(data / "logs") in last


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--metering", "2"], {}, "--metering 2 needs PostgreSQL"),
        (["--routers", "2"], {"LEGATO_ROUTER_HEALTH_LISTEN": "unix:/tmp/h"}, "LEGATO_ROUTER_HEALTH_LISTEN: must be"),
    ],
)
def test_processes_that_cannot_be_several_are_refused(
    arguments: list[str], environ: dict[str, str], said: str, data: Path
) -> None:
    routes = data.with_name("routes.toml")
    routes.write_text(ROUTES)
    done = subprocess.run(
        [LEGATO, "up", "--port", "0", "--data", str(data), "--routes", str(routes), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert not (data / "run").exists()

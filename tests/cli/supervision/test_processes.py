import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cli.supervision.data_folder import sockets_folder
from cli.supervision.processes import GRPC_WITHOUT_EVENT_ENGINE, ConsoleStart, Installation, process_groups
from cli.supervision.supervisor import ProcessSpec
from tests.cli.installation import PEPPER, installation


def by_name(made: Installation) -> dict[str, ProcessSpec]:
    return {spec.name: spec for group in process_groups(made) for spec in group}


def test_what_others_lean_on_comes_first_and_so_ends_last() -> None:
    groups = process_groups(installation(workers=2))
    assert [[spec.name for spec in group] for group in groups] == [
        ["local-model"],
        ["auth"],
        ["metering"],
        ["router"],
        ["edge-1", "edge-2"],
    ]


def test_the_model_is_started_only_if_something_routes_to_it() -> None:
    assert "local-model" not in by_name(installation(uses_local_model=False))


def test_only_auth_is_told_the_pepper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_KEY_PEPPERS", PEPPER)
    specs = by_name(installation())
    assert {name for name, spec in specs.items() if PEPPER in spec.environ.values()} == {"auth"}


def test_only_the_router_is_told_the_grounding_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "1:" + "cd" * 32
    monkeypatch.setenv("LEGATO_GROUNDING_KEY", key)
    given = msgspec.structs.replace(installation(), grounding_key=key)
    assert {name for name, spec in by_name(given).items() if key in spec.environ.values()} == {"router"}
    assert not [spec for spec in by_name(installation()).values() if key in spec.environ.values()]


@pytest.mark.parametrize("name", ["LEGATO_STRIPE_SECRET_KEY", "LEGATO_STRIPE_WEBHOOK_SECRET_FILE"])
def test_payments_are_there_only_if_they_are_taken_and_alone_have_their_secrets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a secret")
    without, specs = by_name(installation()), by_name(installation(takes_payments=True))
    assert set(specs) - set(without) == {"payments"}
    assert [spec for spec in without.values() if "a secret" in spec.environ.values()] == []
    assert [name for name, spec in specs.items() if "a secret" in spec.environ.values()] == ["payments"]


@pytest.mark.parametrize(
    ("name", "who_is_told"),
    [
        ("OPENAI_API_KEY", {"router"}),
        ("OPENAI_API_KEY_FILE", {"router"}),
        # People keep their own variables under our name; the routes may name them.
        ("LEGATO_PROVIDER_KEY", {"router"}),
        ("AWS_SECRET_ACCESS_KEY", {"router"}),
        ("LEGATO_KEY_PEPPERS_FILE", set()),
        ("LEGATO_DATABASE_URL", {"auth", "metering", "router"}),
        ("LEGATO_DATABASE_URL_FILE", {"auth", "metering", "router"}),
        ("PGPASSWORD", {"auth", "metering", "router"}),
        ("LEGATO_VALKEY_URL", {"metering"}),
        ("LEGATO_VALKEY_URL_FILE", {"metering"}),
    ],
)
def test_a_secret_is_told_to_those_alone_who_use_it(
    name: str, who_is_told: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a secret")
    specs = by_name(installation())
    assert {process for process, spec in specs.items() if "a secret" in spec.environ.values()} == who_is_told


@pytest.mark.parametrize("name", ["PATH", "TZ", "LC_ALL", "PYTHONHASHSEED", "GRPC_VERBOSITY", "LEGATO_FAILPOINTS"])
def test_what_is_no_secret_is_told_to_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "of the machine")
    assert all(spec.environ[name] == "of the machine" for spec in by_name(installation()).values())


def test_only_edges_get_the_public_socket_and_all_hold_the_lock() -> None:
    specs = by_name(installation(workers=2))
    assert {name for name, spec in specs.items() if 7 in spec.pass_fds} == {"edge-1", "edge-2"}
    assert specs["edge-2"].environ["LEGATO_EDGE_FD"] == "7"
    assert all(8 in spec.pass_fds for spec in specs.values())


def test_whatever_the_environment_says_services_are_on_the_private_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_AUTH_LISTEN", "0.0.0.0:50051")
    monkeypatch.setenv("LEGATO_AUTH_ADDRESS", "elsewhere:50051")
    specs = by_name(installation())
    address = f"unix:{sockets_folder(Path('/srv/legato'))}/auth.sock"
    assert specs["auth"].environ["LEGATO_AUTH_LISTEN"] == address
    assert specs["edge-1"].environ["LEGATO_AUTH_ADDRESS"] == address


def test_what_is_decided_is_not_said_a_second_time_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is told a setting twice does not start."""
    for name in ("DATA", "AUTH_ADDRESS", "DRAIN_S", "EDGE_OPERATIONS_LISTEN"):
        monkeypatch.setenv(f"LEGATO_{name}_FILE", "/etc/legato/setting")
    for spec in by_name(installation()).values():
        assert not [
            name for name in spec.environ if name.endswith("_FILE") and name.removesuffix("_FILE") in spec.environ
        ]
    # Of answers that end, a router keeps what it was told.
    assert by_name(installation())["router"].environ["LEGATO_DRAIN_S_FILE"] == "/etc/legato/setting"


def test_each_process_is_asked_for_its_health_on_its_own_socket() -> None:
    specs = by_name(installation(workers=2))
    assert len({spec.health.socket for spec in specs.values()}) == len(specs)
    assert specs["local-model"].health.protocol == "http"
    assert specs["edge-2"].environ["LEGATO_EDGE_HEALTH_LISTEN"] == f"unix:{specs['edge-2'].health.socket}"


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:9100", ["127.0.0.1:9100", "127.0.0.1:9101"]), ("[::1]:0", ["[::1]:0", "[::1]:0"]), ("", ["", ""])],
)
def test_each_edge_is_looked_after_on_a_port_of_its_own(listen: str, expected: list[str]) -> None:
    specs = by_name(installation(workers=2, edge_operations_listen=listen))
    assert [specs[name].environ["LEGATO_EDGE_OPERATIONS_LISTEN"] for name in ("edge-1", "edge-2")] == expected


def test_every_process_does_without_grpcs_event_engine_unless_an_operator_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [name] = GRPC_WITHOUT_EVENT_ENGINE
    specs = by_name(installation()).values()
    assert {spec.environ[name] for spec in specs} == set(GRPC_WITHOUT_EVENT_ENGINE.values())
    monkeypatch.setenv(name, "tcp_rcv_lowat")
    assert {spec.environ[name] for spec in by_name(installation()).values()} == {"tcp_rcv_lowat"}


def test_grpc_knows_what_it_is_told_to_do_without() -> None:
    """gRPC complains of names it does not know, as it may after an update."""
    command = [sys.executable, "-c", "import grpc; grpc.insecure_channel('unix:/nowhere')"]
    environ = {**os.environ, **GRPC_WITHOUT_EVENT_ENGINE}
    assert subprocess.run(command, env=environ, capture_output=True, check=True, text=True).stderr == ""


def test_the_console_comes_last_is_not_waited_for_and_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    signing_key = "ef" * 32
    monkeypatch.setenv("LEGATO_ACCESS_TOKEN_SIGNING_KEY", signing_key)
    monkeypatch.setenv("LEGATO_DATABASE_URL", "postgresql://somewhere/legato")
    console = ConsoleStart(fds=(7, 8), url="http://localhost:9000", api_url="http://127.0.0.1:1/v1")
    given = msgspec.structs.replace(installation(), console=console, access_token_signing_key=signing_key)
    [spec] = process_groups(given)[-1]
    assert (spec.name, spec.is_awaited) == ("console", False)
    assert {7, 8} <= set(spec.pass_fds)
    assert spec.environ["LEGATO_CONSOLE_FD"] == "7,8"
    assert spec.environ["LEGATO_AUTH_ADDRESS"].endswith("/auth-console.sock")
    assert {PEPPER, signing_key, "postgresql://somewhere/legato"}.isdisjoint(spec.environ.values())
    assert "console" not in by_name(installation())


def test_several_routers_and_meterings_are_numbered_and_the_model_is_started_once() -> None:
    groups = process_groups(installation(workers=2, routers=2, meterings=2))
    assert [[spec.name for spec in group] for group in groups] == [
        ["local-model"],
        ["auth"],
        ["metering-1", "metering-2"],
        ["router-1", "router-2"],
        ["edge-1", "edge-2"],
    ]


def test_edges_know_all_routers_and_each_router_its_own_socket() -> None:
    specs = by_name(installation(workers=2, routers=2))
    sockets = [f"unix:{specs[name].health.socket}" for name in ("router-1", "router-2")]
    assert len(set(sockets)) == 2
    assert specs["edge-2"].environ["LEGATO_ROUTER_ADDRESS"] == ",".join(sockets)
    assert [specs[name].environ["LEGATO_ROUTER_LISTEN"] for name in ("router-1", "router-2")] == sockets


def test_edges_know_their_position() -> None:
    specs = by_name(installation(workers=2))
    assert [specs[name].environ["LEGATO_EDGE_POSITION"] for name in ("edge-1", "edge-2")] == ["1/2", "2/2"]


def test_each_router_has_further_ports_of_its_own() -> None:
    listens = {"LEGATO_ROUTER_METRICS_LISTEN": "127.0.0.1:9200", "LEGATO_METERING_HEALTH_LISTEN": "unix:/tmp/m"}
    specs = by_name(installation(routers=2, further_listens=listens))
    ports = [specs[name].environ["LEGATO_ROUTER_METRICS_LISTEN"] for name in ("router-1", "router-2")]
    assert ports == ["127.0.0.1:9200", "127.0.0.1:9201"]
    assert specs["metering"].environ["LEGATO_METERING_HEALTH_LISTEN"] == "unix:/tmp/m"


@pytest.mark.parametrize("routers", [2, 3, 40])
def test_routers_share_the_places_at_the_one_model(routers: int) -> None:
    environs = [spec.environ for name, spec in by_name(installation(routers=routers)).items() if "router-" in name]
    places = [int(one["LEGATO_LOCAL_MODEL_PARALLEL"]) + int(one["LEGATO_LOCAL_MODEL_QUEUE"]) for one in environs]
    assert len(places) == routers
    assert min(places) >= 1
    assert sum(places) <= max(34, routers)


def test_one_of_several_metering_processes_audits_the_ledger() -> None:
    specs = by_name(installation(meterings=3))
    audits = [specs[f"metering-{number}"].environ.get("LEGATO_AUDIT_INTERVAL_S") for number in (1, 2, 3)]
    assert audits == [None, "0", "0"]
    assert specs["metering-2"].environ["LEGATO_METERING_REPLICAS"] == "3"


def test_the_operators_console_knows_where_each_process_tells_its_state() -> None:
    console = ConsoleStart(fds=(9,), url="http://localhost:8081", api_url="http://127.0.0.1:8080/v1")
    made = msgspec.structs.replace(
        installation(workers=2, further_listens={"LEGATO_ROUTER_METRICS_LISTEN": "127.0.0.1:9100"}), console=console
    )
    specs = by_name(made)
    environ = specs["console"].environ
    told = dict(entry.split("=") for entry in environ["LEGATO_CONSOLE_STATUS_ADDRESSES"].split(","))
    assert set(told) == {"edge-1", "edge-2", "auth", "metering", "router"}
    assert environ["LEGATO_CONSOLE_ROLE"] == "operator-console"
    for name, variable in (
        ("edge-2", "LEGATO_EDGE_OPERATIONS_LISTEN"),
        ("auth", "LEGATO_AUTH_METRICS_LISTEN"),
        ("metering", "LEGATO_METERING_METRICS_LISTEN"),
    ):
        assert told[name].startswith("unix:")
        assert specs[name].environ[variable] == told[name]
    # What was set stays.
    assert told["router"] == specs["router"].environ["LEGATO_ROUTER_METRICS_LISTEN"] == "127.0.0.1:9100"


def test_without_an_operators_console_nobody_tells_its_state_unasked() -> None:
    console = ConsoleStart(fds=(9,), url="http://localhost:8081", api_url="http://127.0.0.1:8080/v1")
    public = msgspec.structs.replace(installation(), console=console, console_role="console")
    for made in (installation(), public):
        specs = by_name(made)
        assert "LEGATO_AUTH_METRICS_LISTEN" not in specs["auth"].environ
        assert specs["edge-1"].environ["LEGATO_EDGE_OPERATIONS_LISTEN"] == ""

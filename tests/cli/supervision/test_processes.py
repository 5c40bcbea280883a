from pathlib import Path

import pytest

from cli.supervision.data_folder import sockets_folder
from cli.supervision.processes import process_groups
from tests.cli.installation import CONSOLE, PEPPER, by_name, installation


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
    given = installation(secrets={"LEGATO_GROUNDING_KEY": key})
    assert {name for name, spec in by_name(given).items() if key in spec.environ.values()} == {"router"}
    assert not [spec for spec in by_name(installation()).values() if key in spec.environ.values()]


@pytest.mark.parametrize("name", ["LEGATO_STRIPE_SECRET_KEY", "LEGATO_STRIPE_WEBHOOK_SECRET_FILE"])
def test_payments_are_there_only_if_they_are_taken_and_alone_have_their_secrets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a secret")
    without = by_name(installation(console=CONSOLE))
    specs = by_name(installation(console=CONSOLE, stripe_secret_key="a secret"))
    assert set(specs) - set(without) == {"payments"}
    assert [spec for spec in without.values() if "a secret" in spec.environ.values()] == []
    assert [name for name, spec in specs.items() if "a secret" in spec.environ.values()] == ["payments"]


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


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("10.0.0.1:7000", ["10.0.0.1:7000", "10.0.0.1:7001"]),
        ("", [f"unix:{sockets_folder(Path('/srv/legato'))}/{name}.sock" for name in ("chat", "chat-2")]),
    ],
)
def test_each_edge_serves_programs_at_an_address_of_its_own(listen: str, expected: list[str]) -> None:
    specs = by_name(installation(workers=2, edge_rpc_listen=listen))
    assert [specs[name].environ["LEGATO_EDGE_RPC_LISTEN"] for name in ("edge-1", "edge-2")] == expected


def test_the_console_comes_last_is_not_waited_for_and_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    signing_key = "ef" * 32
    monkeypatch.setenv("LEGATO_ACCESS_TOKEN_SIGNING_KEY", signing_key)
    monkeypatch.setenv("LEGATO_DATABASE_URL", "postgresql://somewhere/legato")
    given = installation(console=CONSOLE, secrets={"LEGATO_ACCESS_TOKEN_SIGNING_KEY": signing_key})
    [spec] = process_groups(given)[-1]
    assert (spec.name, spec.is_awaited) == ("console", False)
    assert {9, 10} <= set(spec.pass_fds)
    assert spec.environ["LEGATO_CONSOLE_FD"] == "9,10"
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
    made = installation(routers=2, router_metrics_listen="127.0.0.1:9200", metering_health_listen="unix:/tmp/m")
    specs = by_name(made)
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
    specs = by_name(installation(workers=2, console=CONSOLE, router_metrics_listen="127.0.0.1:9100"))
    environ = specs["console"].environ
    told = dict(entry.split("=") for entry in environ["LEGATO_CONSOLE_STATUS_ADDRESSES"].split(","))
    assert set(told) == {"edge-1", "edge-2", "auth", "metering", "router", "console"}
    assert environ["LEGATO_CONSOLE_ROLE"] == "operator-console"
    for name, variable in (
        ("edge-2", "LEGATO_EDGE_OPERATIONS_LISTEN"),
        ("auth", "LEGATO_AUTH_METRICS_LISTEN"),
        ("metering", "LEGATO_METERING_METRICS_LISTEN"),
        ("console", "LEGATO_CONSOLE_OPERATIONS_LISTEN"),
    ):
        assert told[name].startswith("unix:")
        assert specs[name].environ[variable] == told[name]
    # What was set stays.
    assert told["router"] == specs["router"].environ["LEGATO_ROUTER_METRICS_LISTEN"] == "127.0.0.1:9100"


def test_without_an_operators_console_no_process_tells_its_state_unasked() -> None:
    for made in (installation(), installation(console=CONSOLE, console_role="console")):
        specs = by_name(made)
        assert "LEGATO_AUTH_METRICS_LISTEN" not in specs["auth"].environ
        assert specs["edge-1"].environ["LEGATO_EDGE_OPERATIONS_LISTEN"] == ""

import os
import subprocess
import sys

import pytest

from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE
from tests.cli.installation import by_name, installation


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

"""The compose file keeps the promises that a schema cannot check."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from edge.settings import EdgeSettings
from services.auth.__main__ import AuthSettings
from services.auth.keys import parse_peppers
from services.chassis.settings import PREFIX, load
from services.metering.settings import MeteringSettings
from services.router.__main__ import RouterSettings
from services.router.local_model import LocalModelSettings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS: dict[str, type[msgspec.Struct]] = {
    "auth": AuthSettings,
    "edge": EdgeSettings,
    "local-model": LocalModelSettings,
    "metering": MeteringSettings,
    "router": RouterSettings,
}


def environment_of(name: str) -> dict[str, str]:
    """As a container gets it when nothing is set in the shell."""
    given: dict[str, str] = SERVICES[name]["environment"]
    return {variable: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for variable, value in given.items()}


def test_the_edge_alone_is_published() -> None:
    assert [name for name, service in SERVICES.items() if service.get("ports")] == ["edge"]


def test_services_meet_on_a_network_that_nobody_else_is_on() -> None:
    assert COMPOSE["networks"]["backplane"]["internal"] is True
    for name in ("auth", "metering", "postgres", "valkey"):
        assert SERVICES[name]["networks"] == ["backplane"]


def test_unprotected_tcp_is_switched_on_only_where_somebody_listens() -> None:
    switched_on = {name for name in OURS if "LEGATO_INSECURE_TCP" in SERVICES[name]["environment"]}

    assert switched_on == {"auth", "metering", "router"}


@pytest.mark.parametrize("name", OURS)
def test_what_is_set_is_what_the_process_reads(name: str) -> None:
    kind, environment = OURS[name], environment_of(name)

    # A misspelt variable would be ignored without a word.
    assert set(environment) <= {PREFIX + field.name.upper() for field in msgspec.structs.fields(kind)}
    load(kind, environment)


def test_the_pepper_for_trying_out_is_one() -> None:
    parse_peppers(environment_of("auth")["LEGATO_KEY_PEPPERS"])


@pytest.mark.parametrize("name", OURS)
def test_our_containers_may_change_nothing_and_become_nobody(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_says_whether_it_serves(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_every_image_has_a_version() -> None:
    for service in SERVICES.values():
        assert ":" in service["image"]
        assert not service["image"].endswith(":latest")


def test_files_that_are_mounted_exist() -> None:
    for variable, file in (("LEGATO_ROUTES_FILE", "routes.toml"), ("LEGATO_PRICES_FILE", "prices.toml")):
        source = f"${{{variable}:-./{file}}}"
        assert any(mount.startswith(source) for service in SERVICES.values() for mount in service.get("volumes", []))
        assert (ROOT / file).is_file()

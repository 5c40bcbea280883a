"""The compose file keeps the promises that a schema cannot check."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from console.settings import ConsoleServerSettings
from deploy.make_secrets import hand_over, make_secrets
from edge.settings import EdgeSettings
from services.auth.settings import AuthSettings
from services.chassis.settings import PREFIX, load
from services.metering.settings import MeteringSettings
from services.payments.settings import PaymentsSettings
from services.router.grounding.files.reader import MEMORY_BYTES
from services.router.grounding.files.turns import AT_ONCE
from services.router.grounding.settings import GroundingSettings
from services.router.local_model import LocalModelSettings
from services.router.settings import RouterSettings
from tests.deploy.compose import BASES
from tests.deploy.engine import REGISTRY, STAND_INS, qualified
from tests.deploy.kubernetes.kustomize import ONE_NODE, render_with_all
from tests.deploy.kubernetes.policies import containers

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "auth": (AuthSettings,),
    "console": (ConsoleServerSettings,),
    "operator-console": (ConsoleServerSettings,),
    "edge": (EdgeSettings,),
    "local-model": (LocalModelSettings,),
    "metering": (MeteringSettings,),
    "payments": (PaymentsSettings,),
    "router": (RouterSettings, GroundingSettings),
}
# They say what they have to say, and end.
ONE_SHOT = ("backup", "hello", "legato", "secrets")
SECRETS = "/run/secrets/legato"


def environment_of(name: str) -> dict[str, str]:
    """Variables of a container if the shell sets none."""
    given: dict[str, str] = SERVICES[name]["environment"]
    return {variable: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for variable, value in given.items()}


def volumes_of(name: str) -> dict[str, str]:
    """Maps source to target."""
    mounts = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", mount) for mount in SERVICES[name].get("volumes", [])]
    return {source: target for source, target, *_ in (mount.split(":") for mount in mounts)}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    make_secrets(tmp_path)
    return tmp_path


def test_balancer_consoles_and_grafana_alone_are_published_to_this_machine() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if service.get("ports")}
    # Wherever the others may be published, the operators' console stays on the machine.
    [operators] = ports.pop("operator-console")
    assert operators.startswith("127.0.0.1:")
    assert set(ports) == {"balancer", "grafana"}
    assert [port.rpartition(":")[2] for port in ports["balancer"]] == ["8080", "8081"]
    assert all(port.startswith("${LEGATO_BIND:-127.0.0.1}:") for published in ports.values() for port in published)


def test_nothing_between_containers_is_without_protection() -> None:
    for name in ("auth", "console", "edge", "hello", "legato", "metering", "operator-console", "payments", "router"):
        environment = environment_of(name)
        assert "LEGATO_INSECURE_TCP" not in environment
        assert {"LEGATO_TLS_CA", "LEGATO_TLS_CERT", "LEGATO_TLS_KEY"} <= set(environment)


@pytest.mark.parametrize("name", OURS)
def test_what_is_set_is_what_the_process_reads(name: str, secrets: Path) -> None:
    kinds = OURS[name]
    # The files are where the container would find them.
    environment = {
        variable: value.replace(SECRETS, str(secrets / name)) for variable, value in environment_of(name).items()
    }

    # A misspelt variable would be ignored without a word.
    read = {PREFIX + field.name.upper() for kind in kinds for field in msgspec.structs.fields(kind)}
    assert {re.sub("_FILE$", "", variable) for variable in environment} <= read
    for kind in kinds:
        load(kind, environment)


def test_every_secret_has_a_volume_that_its_own_container_alone_mounts(secrets: Path) -> None:
    made = {path.name for path in secrets.iterdir()}
    handed_over = {target.removeprefix("/secrets/"): volume for volume, target in volumes_of("secrets").items()}
    assert set(handed_over) == made
    for holder, volume in handed_over.items():
        mounted_by = {name for name in SERVICES if volume in volumes_of(name)} - {"secrets"}
        assert mounted_by == (
            {"hello", "legato"} if holder == "admin" else set() if holder == "authority" else {holder}
        )


def test_only_the_router_is_told_the_providers_keys() -> None:
    assert [name for name in SERVICES if "env_file" in SERVICES[name]] == ["router"]


def test_secrets_stay_the_same_and_certificates_are_new_on_every_start(secrets: Path) -> None:
    kept = ("auth/key-peppers", "postgres/password", "metering/valkey-url", "router/grounding-key", "authority/ca.pem")
    before = {name: (secrets / name).read_text() for name in (*kept, "edge/tls.pem")}

    make_secrets(secrets)

    after = {name: (secrets / name).read_text() for name in before}
    assert {name for name in before if before[name] != after[name]} == {"edge/tls.pem"}


def test_what_root_hands_over_is_read_by_its_container_alone(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[Path, int] = {}
    monkeypatch.setattr(os, "chown", lambda path, user, group: given.update({path: user}))

    hand_over(secrets)

    for path in (*secrets.iterdir(), *secrets.glob("*/*")):
        holder = path.relative_to(secrets).parts[0]
        if holder in ("grafana", "postgres", "valkey"):
            # Their images' users are others; no other service has the volume.
            assert path.stat().st_mode & 0o444 == 0o444, path
            assert path not in given
        else:
            assert given[path] == 10001
            assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".pem", path


def test_what_is_handed_over_stays_so_at_the_next_start(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chown", lambda *arguments: None)
    hand_over(secrets)

    make_secrets(secrets)

    for name in ("grafana/password", "postgres/password", "valkey/valkey.conf"):
        assert (secrets / name).stat().st_mode & 0o444 == 0o444, name


@pytest.mark.parametrize("name", [*OURS, "backup", "hello", "legato", "secrets"])
def test_our_containers_change_nothing(name: str) -> None:
    assert SERVICES[name]["read_only"] is True


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_may_do_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges"]
    # To hand files over; and to do so, and then to become one's own user.
    needed = {"secrets": ["CHOWN", "DAC_OVERRIDE"], "postgres": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]}
    assert service.get("cap_add", []) == needed.get(name, [])


def test_only_the_service_that_hands_secrets_over_is_root_and_it_has_no_network() -> None:
    users = {name: service["user"] for name, service in SERVICES.items() if "user" in service}
    # Whom the manifests run Valkey as, too.
    assert users == {"secrets": "0:0", "valkey": "999:999", "search": "977:977"}
    assert SERVICES["secrets"]["network_mode"] == "none"


def test_memory_is_limited_as_in_kubernetes() -> None:
    manifests = render_with_all(ONE_NODE)
    limits = {
        container["name"]: container["resources"]["limits"]["memory"].removesuffix("i").lower()
        for _, _, container in containers(manifests)
    }
    given = {name: service["mem_limit"] for name, service in SERVICES.items()}
    assert {*OURS, "postgres", "valkey"} <= limits.keys()
    assert {name: given[name] for name in limits.keys() & given.keys()} == {
        name: limits[name] for name in limits.keys() & given.keys()
    }


def test_readers_of_documents_have_memory_beside_the_router() -> None:
    megabytes = int(SERVICES["router"]["mem_limit"].removesuffix("m"))
    assert megabytes * 1024**2 == 1024**3 + AT_ONCE * MEMORY_BYTES


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ONE_SHOT])
def test_every_container_says_whether_it_serves_and_comes_back(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_every_image_has_a_version_and_the_tests_know_those_they_need() -> None:
    images = {service["image"] for service in SERVICES.values()}
    for image in images:
        assert ":" in image
        assert not image.endswith(":latest")
    needed = {
        service["image"]
        for service in SERVICES.values()
        if not set(service.get("profiles", [])) & {"search", "observability"}
    }
    others = {image for image in needed if not image.startswith("legato")}
    [python] = re.findall("^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    needed = {*others, python, SERVICES["prometheus"]["image"]}
    assert set(BASES) == needed
    stand_ins = STAND_INS.read_text()
    assert all(f" {qualified(base).removeprefix(f'{REGISTRY}/')}\n" in stand_ins for base in BASES)


def test_files_that_are_mounted_exist() -> None:
    files = {source for name in SERVICES for source in volumes_of(name) if source.startswith("./")}
    assert {"./routes.toml", "./prices.toml"} <= files
    for file in files:
        assert (ROOT / file).is_file(), file


def test_what_starts_besides_is_what_there_is_a_profile_for() -> None:
    profiles = {profile for service in SERVICES.values() for profile in service.get("profiles", [])}
    assert profiles == {"commands", "local-model", "observability", "payments", "search"}
    assert (ROOT / ".env").read_text().splitlines()[-1] == "COMPOSE_PROFILES=local-model"


def test_ci_runs_what_needs_an_engine() -> None:
    jobs = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    steps = " ".join(step.get("run", "") for step in jobs["containers"]["steps"])
    assert ["compose-test" in steps, "kube-test" in steps] == [True, True]

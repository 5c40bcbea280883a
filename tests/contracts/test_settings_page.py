"""The page of settings names every variable that a process reads, and no other."""

import re
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

from tests.contracts.all_settings import ALL_SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "settings.md"


def test_page_names_every_setting_and_no_other() -> None:
    named = set(re.findall(r"LEGATO_[A-Z_]*[A-Z]", PAGE.read_text()))
    read = {f"LEGATO_{field.name.upper()}" for kind in ALL_SETTINGS for field in msgspec.structs.fields(kind)}
    assert named == read | {"LEGATO_SETTINGS", "LEGATO_DATABASE_URL_FILE"}


def test_no_setting_can_be_taken_for_the_file_of_another() -> None:
    names = {field.name for kind in ALL_SETTINGS for field in msgspec.structs.fields(kind)}
    # What the compose file reads stands in one shell with what the processes read.
    composed = {name.lower() for name in re.findall(r"\$\{LEGATO_(\w+)", (ROOT / "docker-compose.yml").read_text())}
    assert {"edges", "port"} <= composed
    assert not {f"{name}_file" for name in names} & (names | composed)


def test_compose_file_mounts_no_path_that_a_setting_of_the_container_names() -> None:
    """podman-compose takes what a container is told for what the shell says."""
    for service in YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"].values():
        mounted = set(re.findall(r"\$\{(LEGATO_\w+)", " ".join(map(str, service.get("volumes", ())))))
        assert not mounted & set(service.get("environment", ()))

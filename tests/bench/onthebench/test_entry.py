"""The files that enter Legato in the open benchmark are what its harness accepts, and what the service starts by."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from bench.chats import Case, started_upstream
from bench.onthebench.__main__ import ENTRY, GATEWAY, RUNGS, STREAM, frontier, measure, started_entry
from bench.report import Progress
from services.auth.core.key_format import parse
from tests.bench.made_up import OUTCOME

DEFINITION = json.loads((ENTRY / "definition.json").read_text())
DIALECTS = ["openai", "openai-responses", "anthropic", "gemini", "cohere", "bedrock"]
# What the harness replaces.
PLACEHOLDERS = {"MOCK_PORT", "GW_PORT", "GW_MODEL", "GW_AUTH", "GW_DIR", "CORES", "NCORE"}
REASONS = {"boot", "upstream", "ingress", "bind"}


def test_declared_key_is_one_of_ours() -> None:
    assert parse(DEFINITION["auth"]) is not None


def test_declared_files_exist_and_have_only_known_placeholders() -> None:
    assert os.access(ENTRY / DEFINITION["launch"]["build"], os.X_OK)
    texts = [(ENTRY / file["template"]).read_text() for file in DEFINITION["config_files"]]
    texts += [(ENTRY / "env").read_text(), *DEFINITION["launch"]["args"]]
    assert set(re.findall(r"\{(\w+)\}", "\n".join(texts))) <= PLACEHOLDERS


def test_each_upstream_is_a_class_of_its_own() -> None:
    routes = tomllib.loads((ENTRY / "routes.gen.toml.tmpl").read_text())
    assert list(DEFINITION["egress_models"]) == DEFINITION["egress"]
    assert set(DEFINITION["egress_models"].values()) == set(routes["classes"])
    for dialect, name in DEFINITION["egress_models"].items():
        [model] = routes["classes"][name]["models"]
        assert routes["providers"][routes["models"][model]["provider"]]["kind"] == dialect
    columns = "".join("1" if dialect in DEFINITION["egress"] else "0" for dialect in DIALECTS)
    assert DEFINITION["matrix"] == [columns] * 3 + ["000000"] * 3


def test_each_setting_has_a_reason() -> None:
    lines = [line.split("#")[0].split() for line in (ENTRY / "why").read_text().splitlines()]
    reasons = {line[0]: line[1] for line in lines if line}
    routes = (ENTRY / "routes.gen.toml.tmpl").read_text() + (ENTRY / "env").read_text()
    settings = set(re.findall(r"^(\w+) ?=", routes, re.MULTILINE)) | set(re.findall(r"^\[(\w+)", routes, re.MULTILINE))
    assert set(reasons) == settings
    assert set(reasons.values()) <= REASONS


def test_throughput_is_read_at_each_tail() -> None:
    # Its 99th percentile is 5 ms.
    assert [frontier([OUTCOME], tail_ms) for tail_ms in (1, 5, None)] == [None, 500.0, 500.0]


@pytest.mark.long
@pytest.mark.apart
def test_entry_answers_the_declared_key_and_is_measured(tmp_path: Path, progress: Progress) -> None:
    with started_upstream(tmp_path) as upstream, started_entry(upstream, tmp_path) as gateway:
        command = Path(f"/proc/{gateway.processes[GATEWAY]}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        assert command.endswith("--no-console ")
        assert DEFINITION["runtime"]["proc_match"].rpartition("/")[2] in command
        rows = list(measure(upstream, gateway, tmp_path, progress, 0.1, RUNGS[:1]))
        gateway.put_load(Case(STREAM.name, 1, STREAM.chunks), tmp_path, progress, chats=1)
    assert [row.case for row in rows] == ["OpenAI to OpenAI", "no gateway", GATEWAY]

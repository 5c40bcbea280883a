"""The examples in each language do the same, over a unix socket and over TCP with certificates."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato_protos.chat.v1 import chat_pb2
from tests.examples.conftest import ExampleService
from tests.support.toolchains.go import go_build
from tests.support.toolchains.node import NODE, npm_ci
from tests.support.toolchains.stubs import go_stubs
from tests.support.waiting import WAIT_TIMEOUT_S

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = ("chat_sync.py", "chat_asyncio.py")
TRANSPORTS = ("unix", "tcp")

TOLD = """\
answer: Hello, world! (2570 nano-dollars)
tool: get_weather: It rains.
cancel: cancelled
deadline: too late
out of credit: CREDITS_EXHAUSTED
revoked key: KEY_INVALID
"""
# How each charged chat ended, with the tokens of its answer: the first answer and both rounds of the tool; the story,
# of which one word was delivered. The thoughts that took too long are not charged.
CHARGED = {("complete", 7): 3, ("client_gone", 1): 1}


@pytest.fixture(scope="module")
def refused_keys(example_service: ExampleService) -> dict[str, str]:
    service = example_service.service
    revoked = service.make_key(service.new_account())
    service.legato("keys", "revoke", revoked.key.key_id)
    return {
        "LEGATO_API_KEY_WITHOUT_CREDIT": service.new_key(service.new_account(credits="0")),
        "LEGATO_REVOKED_API_KEY": revoked.api_key,
    }


@pytest.fixture(scope="module")
def node_example() -> Path:
    return npm_ci(EXAMPLES / "node", "node-example") / "chat.js"


@pytest.mark.long
def test_python_and_node_examples_tell_the_same_and_are_charged_alike(
    example_service: ExampleService, refused_keys: dict[str, str], node_example: Path
) -> None:
    commands = {name: [sys.executable, str(EXAMPLES / name)] for name in PYTHON}
    commands["node"] = [str(NODE), str(node_example)]
    assert_examples_work(example_service, refused_keys, commands)


@pytest.mark.long
@pytest.mark.apart
def test_go_example_tells_the_same_and_is_charged_alike(
    example_service: ExampleService, refused_keys: dict[str, str], tmp_path: Path
) -> None:
    go_stubs(tmp_path)
    shutil.copytree(EXAMPLES / "go", tmp_path / "src" / "example")
    go_build("example", tmp_path / "example", tmp_path)
    assert_examples_work(example_service, refused_keys, {"go": [str(tmp_path / "example")]})


def test_go_example_uses_what_the_contract_has() -> None:
    """Compiling it takes a minute, which `make go-example` does."""
    service = chat_pb2.DESCRIPTOR.services_by_name["ChatService"].name
    known = {f"{service}Client", f"New{service}Client"}
    for message in chat_pb2.DESCRIPTOR.message_types_by_name.values():
        choices = (field for oneof in message.oneofs for field in oneof.fields)
        known |= {message.name, *(f"{message.name}_{_exported(field.camelcase_name)}" for field in choices)}
    for enum in chat_pb2.DESCRIPTOR.enum_types_by_name.values():
        known |= {enum.name, *(f"{enum.name}_{value.name}" for value in enum.values)}
    source = (EXAMPLES / "go" / "main.go").read_text()
    assert set(re.findall(r"chatv1\.(\w+)", source)) <= known
    assert set(re.findall(r"client\.([A-Z]\w+)\(", source)) == {"Complete", "Stream"}


def _exported(name: str) -> str:
    return name[0].upper() + name[1:]


def assert_examples_work(
    example_service: ExampleService, refused_keys: dict[str, str], commands: dict[str, list[str]]
) -> None:
    """Runs each of them over each transport, with an account of its own."""
    service = example_service.service
    cases = [(name, transport) for name in commands for transport in TRANSPORTS]
    accounts = {case: service.new_account() for case in cases}

    def run(case: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        name, transport = case
        own = {"LEGATO_API_KEY": service.new_key(accounts[case]), "LEGATO_PROTOS": str(EXAMPLES.parent / "protos")}
        environ = {**os.environ, **example_service.environ(transport), **refused_keys, **own}
        return subprocess.run(
            commands[name], env=environ, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False
        )

    with ThreadPoolExecutor(2) as pool:
        for case, ran in zip(cases, pool.map(run, cases), strict=True):
            assert (ran.stdout, ran.returncode) == (TOLD, 0), (case, ran.stderr)
            service.settled_balance_nanos(accounts[case])
            charges = service.entries(accounts[case])
            assert Counter((charge.end, charge.completion_tokens) for charge in charges) == CHARGED, case
    assert service.audit() == []

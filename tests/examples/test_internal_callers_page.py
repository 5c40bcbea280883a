"""The page on internal callers: its programs run as they are printed, where nothing but the client is installed."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from legato_protos.chat.v1.chat_pb2 import StreamRequest
from services.chassis.rpc.channel import open_sync_channel
from services.chassis.telemetry.log import Log
from tests.examples.conftest import ExampleService
from tests.support.stubs_package import ROOT, build_wheel, install_wheel
from tests.support.waiting import WAIT_TIMEOUT_S

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "internal-callers.md").read_text()
FIRST_PROGRAM, PROGRAM_FOR_AN_ACCOUNT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# What the upstream usually says that it used, at the price of class mezzo.
CHAT_NANOS = 11 * 100 + 7 * 210

Run = Callable[[str, dict[str, str]], str]


@pytest.fixture(scope="module")
def run(example_service: ExampleService, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program as a newcomer would: in a folder with the data folder and certificates."""
    folder = tmp_path_factory.mktemp("newcomer")
    python = install_wheel(folder, build_wheel(folder))
    example_service.authority.files("caller/reports")
    (folder / ".legato").symlink_to(example_service.service.data)
    (folder / "certs").symlink_to(example_service.authority.folder)

    def run(program: str, settings: dict[str, str]) -> str:
        ran = subprocess.run(
            [python, "-I", "-c", program],
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=WAIT_TIMEOUT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_the_page_begins_with_ten_lines_that_work(example_service: ExampleService, run: Run) -> None:
    assert len([line for line in FIRST_PROGRAM.splitlines() if line]) <= 10
    service = example_service.service
    account = service.new_account(credits="1.00")
    assert run(FIRST_PROGRAM, {"LEGATO_API_KEY": service.new_key(account)}) == "Hello, world!"
    assert service.settled_balance_nanos(account) == 10**9 - CHAT_NANOS
    assert run(FIRST_PROGRAM, {"LEGATO_API_KEY": "sk-legato-wrong"}).startswith("KEY_INVALID: ")


def test_a_program_calls_for_an_account_that_it_was_granted(example_service: ExampleService, run: Run) -> None:
    service = example_service.service
    account = service.new_account()
    [grant] = re.findall(r"^    legato (callers grant reports .*)$", PAGE, re.MULTILINE)
    service.legato(*shlex.split(grant.replace("ACCOUNT_ID", account)))
    settings = {"LEGATO_ADDRESS": example_service.tcp_address, "ACCOUNT_ID": account}
    assert run(PROGRAM_FOR_AN_ACCOUNT, settings) == f"Hello, world!\nreports: {CHAT_NANOS} nano-dollars\n"


def test_a_caller_can_look_around(example_service: ExampleService, log: Log) -> None:
    tls = example_service.authority.certificates("caller/reports", log).current()
    with open_sync_channel(example_service.tcp_address, tls, "edge") as channel:
        found: Any = ProtoReflectionDescriptorDatabase(channel)
        assert "legato.chat.v1.ChatService" in found.get_services()
        [service] = found.FindFileContainingSymbol("legato.chat.v1.ChatService").service
    calls = PAGE.partition("## The calls")[2].partition("\n## ")[0]
    assert [method.name for method in service.method] == re.findall(r"^\| `(\w+)` \|", calls, re.MULTILINE)
    [asked] = re.findall(r"-d '(.*)'", PAGE)
    assert json_format.Parse(asked, StreamRequest()).chat.messages[0].text == "Say hello."

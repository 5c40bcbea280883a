"""The package of stubs and client, as it is installed elsewhere."""

import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato_protos.chat.v1.chat_pb2 import AnswerMessage, CompleteResponse
from legato_protos.client import ChatOptions, LegatoError
from tests.support.servers.chat_service import ScriptedChatService
from tests.support.stubs_package import ROOT, build_in, build_wheel, copy_package, install_wheel
from tests.support.waiting import WAIT_TIMEOUT_S

PROGRAM = """
import asyncio, importlib, pkgutil, sys
import legato_protos
from legato_protos.client import AsyncLegatoClient, LegatoClient

assert legato_protos.__path__[0].startswith(sys.prefix)
for module in pkgutil.walk_packages(legato_protos.__path__, "legato_protos."):
    importlib.import_module(module.name)

async def ask():
    async with AsyncLegatoClient(sys.argv[1], api_key="sk") as client:
        return (await client.complete("Say hello.")).message.text

with LegatoClient(sys.argv[1], api_key="sk") as client:
    print(client.complete("Say hello.").message.text, asyncio.run(ask()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def package_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture
def service_address(socket_folder: Path) -> Iterator[str]:
    service = ScriptedChatService()
    service.completion = CompleteResponse(message=AnswerMessage(text="Hello."))
    address = f"unix:{socket_folder}/chat.sock"
    server, _ = service.start(address)
    yield address
    server.stop(None).wait()


def test_client_works_where_nothing_but_the_package_is_installed(
    wheel: Path, tmp_path: Path, service_address: str
) -> None:
    python = install_wheel(tmp_path, wheel)
    command = [str(python), "-I", "-W", "error", "-c", PROGRAM, service_address]
    ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S)
    assert (ran.stdout, ran.returncode) == ("Hello. Hello.\n", 0), ran.stderr


def test_package_has_the_client_and_the_public_stubs_and_nothing_else(wheel: Path) -> None:
    assert package_files(wheel) == {
        "legato_protos/__init__.py",
        "legato_protos/py.typed",
        "legato_protos/chat/__init__.py",
        "legato_protos/chat/v1/__init__.py",
        *(f"legato_protos/chat/v1/chat_pb2{ending}" for ending in (".py", ".pyi", "_grpc.py", "_grpc.pyi")),
        *(f"legato_protos/client/{path.name}" for path in (ROOT / "legato_protos" / "client").glob("*.py")),
        "legato_protos/client/service_config.json",
    }


def test_what_an_earlier_build_left_is_not_packed(wheel: Path, tmp_path: Path) -> None:
    copy = copy_package(tmp_path)
    build_in(copy, tmp_path / "first")
    assert (copy / "build").is_dir()
    assert package_files(build_in(copy, tmp_path / "second")) == package_files(wheel)


def test_package_describes_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    assert (ROOT / "legato_protos" / "README.md").read_text().strip() in metadata
    assert "Requires-Python: <3.15,>=3.11" in metadata


def test_readme_names_every_option_and_every_class_of_errors() -> None:
    text = (ROOT / "legato_protos" / "README.md").read_text()
    named = [*ChatOptions.__annotations__, *(kind.__name__ for kind in LegatoError.__subclasses__())]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_package_needs_the_versions_that_its_stubs_were_generated_with_and_no_newer() -> None:
    own, whole = (
        tomllib.loads((ROOT / path).read_text())["project"]
        for path in ("legato_protos/pyproject.toml", "pyproject.toml")
    )
    assert own["version"] == whole["version"]
    assert set(own["dependencies"]) <= set(whole["dependencies"])
    messages, methods = (
        (ROOT / "legato_protos" / "chat" / "v1" / name).read_text() for name in ("chat_pb2.py", "chat_pb2_grpc.py")
    )
    least = dict(requirement.split(",")[0].split(">=") for requirement in own["dependencies"])
    assert f"# Protobuf Python Version: {least['protobuf']}\n" in messages
    assert f"GRPC_GENERATED_VERSION = '{least['grpcio']}'\n" in methods

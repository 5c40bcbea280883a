"""Limits of a document that has taken over its reader: what the kernel lets us take away is really gone."""

import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.router.grounding.files.extraction import reader_command
from services.router.grounding.files.isolation import LANDLOCK, NAMESPACES, SECCOMP
from tests.support.pdfs import make_pdf

# Stands in the place of what reads a document, in the real process: tries what it should not be able to do.
INTRUDER = """
import json, os, socket, sys
def attempt(what):
    try:
        return [True, repr(what())]
    except BaseException as error:
        return [False, type(error).__name__]
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        return sending.sendto(b"x", ("127.0.0.1", PORT))
def connect():
    with socket.create_connection(("127.0.0.1", PORT), timeout=5):
        return "connected"
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
def intrude(document, kind, pages_most):
    return 1, [json.dumps({
        "secret file": attempt(lambda: open(SECRET).read()),
        "beside the program": attempt(lambda: os.listdir(PROGRAM)),
        "parent's environment": attempt(lambda: open(f"/proc/{PARENT}/environ", "rb").read()),
        "new file": attempt(lambda: open(SECRET + ".new", "w")),
        "tcp": attempt(connect), "udp": attempt(send), "fork": attempt(fork),
        "exec": attempt(lambda: os.execv("/nowhere", ["true"])),
        "signal": attempt(lambda: os.kill(PARENT, 0)),
        "environ": sorted(os.environ), "computing": attempt(lambda: sum(range(1000))),
        "late library": attempt(lambda: __import__("colorsys")),
    })]
from services.router.grounding.files import reader
reader.pages_of = intrude
"""


@pytest.fixture
def listening() -> Any:
    """A port of this machine at which a server answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def intrude(tmp_path: Path, port: int, *before: str) -> dict[str, Any]:
    """Runs the intruder; `before` changes the program in the place of a kernel that can do less."""
    secret = tmp_path / "key-peppers"
    secret.write_text("1:secret")
    python, *options, program, folders, pages = reader_command(10)
    first, _, last = program.rpartition("; ")
    names = {"SECRET": str(secret), "PORT": port, "PARENT": os.getpid(), "PROGRAM": folders.partition(":")[0]}
    told = [f"{name} = {value!r}" for name, value in names.items()]
    changed = "\n".join((first.replace("; ", "\n"), *told, *before, INTRUDER, last))
    ended = subprocess.run(
        [python, *options, changed, folders, pages],
        input=b"A document.",
        env={},
        capture_output=True,
        timeout=60,
        check=True,
    )
    isolated, _, page = (json.loads(line) for line in ended.stdout.splitlines())
    return {"holds": isolated["holds"], **json.loads(page["text"])}


# A kernel that takes filters looks for the one that was not given (EFAULT).
ASKS_FOR_A_FILTER = "libc.prctl(22, 2, 0, 0, 0) == -1 and ctypes.get_errno() == 14"


def kernel_has(probe: str) -> bool:
    """Asked in a process of its own, and in words of the test's own: what the reader finds is what is tested."""
    program = f"import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); sys.exit(0 if {probe} else 1)"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_reader_can_read_no_file_and_reach_no_server(tmp_path: Path, listening: int) -> None:
    did = intrude(tmp_path, listening)
    expected = []
    if kernel_has("libc.unshare(0x10000000 | 0x40000000 | 0x08000000) == 0"):
        expected.append(NAMESPACES)
    if kernel_has("libc.syscall(444, None, 0, 1) > 0"):
        expected.append(LANDLOCK)
    if platform.machine() in ("x86_64", "aarch64") and kernel_has(ASKS_FOR_A_FILTER):
        expected.append(SECCOMP)
    assert did["holds"] == expected
    assert did["environ"] == [] or did["environ"] == ["LC_CTYPE"]
    assert did["computing"][0]
    if LANDLOCK in expected or SECCOMP in expected:
        assert not did["new file"][0]
        assert not did["secret file"][0]
        assert not did["parent's environment"][0]
        assert not did["beside the program"][0]
    if LANDLOCK in expected:
        assert did["late library"][0]
    if NAMESPACES in expected or SECCOMP in expected:
        assert not did["tcp"][0]
        assert not did["udp"][0]
    if SECCOMP in expected:
        assert not did["fork"][0]
        assert not did["signal"][0]
        # Not even looked for.
        assert did["exec"] == [False, "PermissionError"]


WITHOUT = "from services.router.grounding.files import isolation\nisolation.{} = lambda *_, **__: {}"


@pytest.mark.parametrize(
    "missing",
    [
        {"landlock_version": 0},
        {"landlock_version": 0, "_enter_namespaces": False},
        {"_enter_namespaces": False},
    ],
)
def test_where_the_kernel_can_do_less_the_rest_holds(tmp_path: Path, listening: int, missing: dict[str, Any]) -> None:
    did = intrude(tmp_path, listening, *(WITHOUT.format(name, value) for name, value in missing.items()))
    if SECCOMP not in did["holds"]:
        pytest.skip("this kernel filters no system calls")
    for attempted in ("secret file", "parent's environment", "beside the program", "tcp", "udp", "fork", "signal"):
        assert not did[attempted][0], attempted
    assert did["exec"] == [False, "PermissionError"]
    assert did["late library"][0] == (LANDLOCK in did["holds"])


def test_where_nothing_holds_it_says_so_and_reads(tmp_path: Path, listening: int) -> None:
    missing = {"landlock_version": 0, "_enter_namespaces": False, "_filter_calls": False}
    did = intrude(tmp_path, listening, *(WITHOUT.format(name, value) for name, value in missing.items()))
    assert did["holds"] == []
    assert did["exec"] == [False, "FileNotFoundError"]
    assert did["secret file"] == [True, "'1:secret'"]
    assert did["computing"][0]


@pytest.mark.parametrize("missing", [{}, {"landlock_version": 0}])
def test_documents_are_read_all_the_same(missing: dict[str, Any]) -> None:
    python, *options, program, folders, pages = reader_command(10)
    first, _, last = program.rpartition("; ")
    changed = "\n".join((first.replace("; ", "\n"), *(WITHOUT.format(*item) for item in missing.items()), last))
    for document, text in ((make_pdf(["One."]), "One."), (b"<html><p>Two &amp; three</p></html>", "Two & three")):
        ended = subprocess.run(
            [python, *options, changed, folders, pages],
            input=document,
            env={},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert text in json.loads(ended.stdout.splitlines()[-1])["text"]

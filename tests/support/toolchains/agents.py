"""The agents and libraries that `make agents` runs, at the versions of `requirements/agents/` and `agents.lock`."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.debian import taking_turns
from tests.support.toolchains.node import NODE, NPM, node_environ

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "requirements" / "agents"
PYTHON_LOCK = ROOT / "requirements" / "agents.lock"
PROGRAMS = ROOT / "tests" / "agents" / "programs"
FOLDER = Path(sys.prefix) / "agents"
LIBRARIES = FOLDER / "libraries"
UV = Path(sys.executable).with_name("uv")
# Their scripts put the program for this machine in its place; scripts of other packages are not needed.
WITH_SCRIPTS = ("@anthropic-ai/claude-code", "opencode-ai")
TIMEOUT_S = 900.0


# Looked at once by each test process.
@functools.cache
def agents_path() -> Mapping[str, str]:
    """Returns the variables with which agents and programs are found: `PATH` and `PYTHONPATH`. On the first run, and
    when a lock has changed, all are installed."""
    FOLDER.mkdir(exist_ok=True)
    with taking_turns(FOLDER / "lock"):
        wanted = PYTHON_LOCK.read_bytes() + (SOURCES / "package-lock.json").read_bytes()
        done = FOLDER / "installed"
        if not done.exists() or done.read_bytes() != wanted:
            _install_packages()
            _install_libraries()
            done.write_bytes(wanted)
    for program in PROGRAMS.iterdir():
        # Modules are found beside the program that imports them.
        if program.is_file():
            shutil.copy(program, FOLDER)
    folders = (FOLDER / "node_modules" / ".bin", NODE.parent, Path(sys.executable).parent, "/usr/bin", "/bin")
    return {"PATH": os.pathsep.join(map(str, folders)), "PYTHONPATH": str(LIBRARIES), "PROGRAMS": str(FOLDER)}


def _install_packages() -> None:
    for file in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / file, FOLDER)
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    # Not `npm ci`, which wants the lock to have the programs for other machines, too.
    for command in (("install", "--no-save", "--ignore-scripts", *quiet), ("rebuild", *quiet, *WITH_SCRIPTS)):
        subprocess.run([str(NODE), str(NPM), *command], cwd=FOLDER, env=node_environ(), check=True, timeout=TIMEOUT_S)


def _install_libraries() -> None:
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    options = ["--quiet", "--require-hashes", "--no-deps", "--target", str(LIBRARIES)]
    command = [str(UV), "pip", "install", *options, "-r", str(PYTHON_LOCK)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)

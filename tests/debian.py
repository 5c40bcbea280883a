"""Programs that come as Debian packages, unpacked into a folder of our own. Nothing is installed."""

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "debian"
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Program:
    path: str
    # Where its libraries are, if they came with it.
    environ: dict[str, str] = field(default_factory=dict)


def find_program(name: str, *packages: str) -> Program:
    """The one that is installed, or else the one in the first of these packages; the others have its libraries. Where
    there are no packages to be had, the test is skipped."""
    if installed := shutil.which(name):
        return Program(installed)
    folder = FOLDER / packages[0]
    FOLDER.mkdir(exist_ok=True)
    # Several workers may come for it at once.
    with (FOLDER / f"{packages[0]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() and not _unpack(folder, packages):
            pytest.skip(f"{name} is not installed, and Debian's packages cannot be reached")
    [path] = [found for found in folder.rglob(f"*bin/{name}") if os.access(found, os.X_OK)]
    libraries = {str(library.parent) for library in folder.rglob("lib*.so*")}
    return Program(str(path), {"LD_LIBRARY_PATH": ":".join(sorted(libraries))} if libraries else {})


def _unpack(folder: Path, packages: tuple[str, ...]) -> bool:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    fetched = folder.with_suffix(".new")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir()
    # Who is root may not have apt's own user write here, and needs not.
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages]
    if subprocess.run(command, cwd=fetched, capture_output=True, timeout=TIMEOUT_S, check=False).returncode:
        return False
    for archive in list(fetched.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, fetched], check=True, timeout=TIMEOUT_S)
        archive.unlink()
    fetched.rename(folder)
    return True

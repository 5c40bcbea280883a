"""Programs that come as Debian packages, unpacked into a folder of our own. Nothing is installed."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "debian"
# A browser has a hundred megabytes.
TIMEOUT_S = 300.0


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
    if not is_unpacked(folder, packages):
        pytest.skip(f"{name} is not installed, and Debian's packages cannot be reached")
    [path] = [found for found in folder.rglob(f"*bin/{name}") if os.access(found, os.X_OK)]
    libraries = {str(library.parent) for library in folder.rglob("lib*.so*")}
    return Program(str(path), {"LD_LIBRARY_PATH": ":".join(sorted(libraries))} if libraries else {})


# Tried once, however many tests want it.
@functools.cache
def is_unpacked(folder: Path, packages: tuple[str, ...]) -> bool:
    FOLDER.mkdir(exist_ok=True)
    # Several workers may come for it at once.
    with (FOLDER / f"{packages[0]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder.exists() or _unpack(folder, packages)


def _unpack(folder: Path, packages: tuple[str, ...]) -> bool:
    fetched = folder.with_suffix(".new")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir()
    # Who is root may not have apt's own user write here, and needs not.
    options = ("-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::Retries=0")
    try:
        subprocess.run(
            ["apt-get", "download", "-qq", *options, *packages],
            cwd=fetched,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        for archive in list(fetched.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, fetched], timeout=TIMEOUT_S, check=True)
            archive.unlink()
    except (OSError, subprocess.SubprocessError):
        # Not a Debian, or no way to its packages from here.
        return False
    fetched.rename(folder)
    return True

"""Programs that come as Debian packages, unpacked into a folder of our own. Nothing is installed."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def taking_turns(file: Path) -> Iterator[None]:
    """Lets one test process after the other install what all want."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unpack_from_pool(digest: str, path: str, folder: Path) -> None:
    """Unpacks a package from the mirror that apt uses; it need not be of the release that is installed here. Raises
    OSError where the mirror cannot be reached."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    mirrors = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    mirror = next(mirror for mirror in mirrors if "security" not in mirror)
    with urllib.request.urlopen(f"{mirror}{path}", timeout=TIMEOUT_S) as response:
        content = response.read()
    assert hashlib.sha256(content).hexdigest() == digest, path
    folder.mkdir(exist_ok=True)
    archive = folder / "package.deb"
    archive.write_bytes(content)
    subprocess.run(["dpkg-deb", "-x", archive, folder], check=True, timeout=TIMEOUT_S)
    archive.unlink()


# Tried once, however many tests want it.
@functools.cache
def is_unpacked(folder: Path, packages: tuple[str, ...]) -> bool:
    FOLDER.mkdir(exist_ok=True)
    with taking_turns(FOLDER / f"{packages[0]}.lock"):
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

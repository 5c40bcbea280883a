"""Go from its wheel, and libraries from Debian's packages of their sources: Go's own registry is not needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.servers.debian import taking_turns, unpack_from_pool

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
INSTALLED = Path(sys.prefix) / "go"
TOOLCHAIN = INSTALLED / "toolchain"
PACKAGES = INSTALLED / "packages"
PLUGINS = INSTALLED / "plugins"
TOOLCHAIN_LOCK = ROOT / "requirements" / "go.lock"
PACKAGES_LOCK = ROOT / "requirements" / "go-packages.lock"
SOURCES_OF_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
# The first build compiles the standard library, too.
TIMEOUT_S = 600.0


def go_plugins() -> Path:
    """Returns a folder with protoc's plugins for Go. On the first run, and when a lock has changed, these, Go and its
    libraries are installed; raises OSError where Debian's packages cannot be reached."""
    INSTALLED.mkdir(exist_ok=True)
    with taking_turns(INSTALLED / "lock"):
        wanted = TOOLCHAIN_LOCK.read_bytes() + PACKAGES_LOCK.read_bytes()
        done = INSTALLED / "installed"
        if not done.exists() or done.read_bytes() != wanted:
            for folder in (TOOLCHAIN, PACKAGES, PLUGINS):
                shutil.rmtree(folder, ignore_errors=True)
            options = ["--quiet", "--require-hashes", "--no-deps", "--target", str(TOOLCHAIN)]
            command = [str(UV), "pip", "install", *options, "-r", str(TOOLCHAIN_LOCK)]
            subprocess.run(command, check=True, timeout=TIMEOUT_S)
            for line in PACKAGES_LOCK.read_text().splitlines():
                digest, path = line.split()
                unpack_from_pool(digest, path, PACKAGES)
            for source in SOURCES_OF_PLUGINS:
                go_build(source, PLUGINS / Path(source).name)
            done.write_bytes(wanted)
    return PLUGINS


def go_build(package: str, program: Path, workspace: Path | None = None) -> None:
    """Builds a package of the libraries, or of the folder `src` of a workspace."""
    paths = [PACKAGES / "usr" / "share" / "gocode"]
    environ = {
        **os.environ,
        # Packages are found by their folders: modules would be looked up in Go's registry.
        "GO111MODULE": "off",
        "GOPATH": os.pathsep.join(map(str, [workspace, *paths] if workspace else paths)),
        "GOCACHE": str(INSTALLED / "cache"),
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    command = [str(TOOLCHAIN / "go" / "bin" / "go"), "build", "-o", str(program), package]
    subprocess.run(command, env=environ, check=True, timeout=TIMEOUT_S)

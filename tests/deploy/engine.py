"""Runs containers for the tests that need them: docker where it works, else podman.

Images are pulled. Where they cannot be, stand-ins are made of Debian's packages (`stand_ins/`).
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "stand_ins" / "make.sh"
# What a build needs where the network is particular, for instance a proxy's authority:
# BUILD_ARGS="--network=host --volume=/my-ca.crt:/etc/ssl/certs/ca-certificates.crt:ro"
BUILD_ARGS = shlex.split(os.environ.get("BUILD_ARGS", ""))
BUILD_TIMEOUT_S = 1800
TIMEOUT_S = 300

# Where podman is to look for images whose names do not say; docker looks there anyway.
REGISTRY = "docker.io"

# As the compose file names what it builds.
TAG = "local"
TARGETS = {"service": "legato", "local-model": "legato-local-model"}


def find_engine() -> str:
    # A docker whose daemon does not answer, or that lacks compose, is none.
    if shutil.which("docker") and _succeeds("docker", "info") and _succeeds("docker", "compose", "version"):
        return "docker"
    if shutil.which("podman") and _succeeds("podman", "info"):
        return "podman"
    sys.exit("There is neither a docker nor a podman that works here.")


def run(*command: str, timeout_s: float = TIMEOUT_S, **environ: str) -> str:
    """Says what it runs, returns its output, and ends all if that fails."""
    print(f"$ {shlex.join(command)}", flush=True)
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"{ended.stdout}{ended.stderr}\nexit code {ended.returncode}")
    return ended.stdout


def build_images(engine: str, bases: Sequence[str], files: Path = ROOT, tag: str = TAG) -> None:
    """`bases` are named as the compose file names them; `files` are those of today, or of a release."""
    if engine == "podman" and not all(_is_there(qualified(image)) for image in bases):
        run(str(STAND_INS), REGISTRY, timeout_s=BUILD_TIMEOUT_S)
    for target, name in TARGETS.items():
        image = f"{name}:{tag}"
        run(engine, "build", *BUILD_ARGS, "--target", target, "--tag", image, str(files), timeout_s=BUILD_TIMEOUT_S)
        size = run(engine, "image", "inspect", "--format", "{{.Size}}", image)
        print(f"{image}: {int(size) / 1e6:.0f} MB")


def qualified(image: str) -> str:
    """postgres:17 -> REGISTRY/library/postgres:17"""
    return f"{REGISTRY}/{image}" if "/" in image else f"{REGISTRY}/library/{image}"


def _is_there(image: str) -> bool:
    return _succeeds("podman", "image", "exists", image) or _succeeds("podman", "pull", "--quiet", image)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False).returncode == 0

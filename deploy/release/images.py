"""Pins the images of others by their digests, in deploy/images.lock and wherever the Dockerfile, Compose and the
manifests name them.

    python -m deploy.release.images            ask the registry, and write what it answers
    python -m deploy.release.images --check    exit with 1 if one is not pinned, or the files differ from the lock
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LOCK: Final = "deploy/images.lock"
# Prints the digest of an image for all platforms.
COMMAND: Final = "docker buildx imagetools inspect --format {{.Manifest.Digest}}"
NOT_PINNED: Final = "-"

# Our own images have no digest before they are built: overlays name it.
_OWN: Final = ("legato:", "legato-local-model:")
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
_REFERENCE: Final = re.compile(
    r"^(?P<before>ARG \w+_IMAGE=| *image: )(?P<image>[\w./-]+:[\w.-]+)(@(?P<digest>sha256:[0-9a-f]{64}))?$",
    re.MULTILINE,
)


def files(root: Path) -> Iterator[Path]:
    """Yields all files that name images."""
    yield root / "Dockerfile"
    yield root / "docker-compose.yml"
    yield from sorted((root / "deploy" / "kubernetes").rglob("*.yaml"))


def read_references(root: Path) -> dict[str, set[str]]:
    """Returns the images that the files name, and with which digests."""
    found: dict[str, set[str]] = {}
    for file in files(root):
        for reference in _REFERENCE.finditer(file.read_text()):
            if not reference["image"].startswith(_OWN):
                found.setdefault(reference["image"], set()).add(reference["digest"] or NOT_PINNED)
    return found


def read_lock(root: Path) -> dict[str, str]:
    lines = (root / LOCK).read_text().splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return dict(entries)


def find_differences(root: Path, *, needs_digests: bool) -> list[str]:
    """Returns what is wrong, a line each."""
    lock, references = read_lock(root), read_references(root)
    wrong = [f"{image} is in {LOCK}, but no file names it" for image in sorted(lock.keys() - references.keys())]
    for image, digests in sorted(references.items()):
        if digests != {lock.get(image)}:
            wrong.append(f"{image} is named with {', '.join(sorted(digests))}, but {LOCK} has {lock.get(image)}")
        elif needs_digests and digests == {NOT_PINNED}:
            wrong.append(f"{image} has no digest: make pin-images")
    return wrong


def find_digest(image: str, command: str) -> str:
    """Asks the registry, by a command whose last argument is the image."""
    ended = subprocess.run([*shlex.split(command), image], capture_output=True, text=True, timeout=300, check=False)
    digest = ended.stdout.strip()
    if ended.returncode or _DIGEST.fullmatch(digest) is None:
        sys.exit(f"{image}: {ended.stderr.strip() or f'{digest} is not a digest'}")
    return digest


def pin(root: Path, command: str) -> None:
    """Writes the digests of all images, or none if one cannot be had."""
    digests = {image: find_digest(image, command) for image in sorted(read_references(root))}

    def pinned(reference: re.Match[str]) -> str:
        digest = digests.get(reference["image"])
        return f"{reference['before']}{reference['image']}@{digest}" if digest else reference[0]

    for file in files(root):
        file.write_text(_REFERENCE.sub(pinned, file.read_text()))
    comments = [line for line in (root / LOCK).read_text().splitlines() if line.startswith("#")]
    lines = [*comments, *(f"{image} {digest}" for image, digest in digests.items())]
    (root / LOCK).write_text("\n".join(lines) + "\n")


def main() -> None:
    if "--check" in sys.argv:
        sys.exit("\n".join(find_differences(ROOT, needs_digests=True)))
    pin(ROOT, os.environ.get("IMAGE_DIGEST", COMMAND))


if __name__ == "__main__":
    main()

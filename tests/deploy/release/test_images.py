"""Images of others, pinned by digest."""

import shutil
import sys
from pathlib import Path

import pytest

from deploy.release.images import LOCK, ROOT, files, find_differences, pin, read_lock, read_references

DIGEST = "sha256:" + "5" * 64


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name images, and the lock."""
    for file in (*files(ROOT), ROOT / LOCK):
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def test_every_image_of_others_is_in_the_lock_as_it_is_named() -> None:
    assert find_differences(ROOT, needs_digests=False) == []
    assert {"python:3.11-slim-bookworm", "postgres:17-bookworm"} <= read_lock(ROOT).keys()


def test_pinning_writes_the_digest_wherever_an_image_is_named(copy: Path) -> None:
    registry = f"{sys.executable} -c 'print(\"{DIGEST}\")'"
    pin(copy, registry)
    assert set(read_lock(copy).values()) == {DIGEST}
    assert find_differences(copy, needs_digests=True) == []
    assert f"ARG PYTHON_IMAGE=python:3.11-slim-bookworm@{DIGEST}\n" in (copy / "Dockerfile").read_text()
    assert f"    image: postgres:17-bookworm@{DIGEST}\n" in (copy / "docker-compose.yml").read_text()
    # Our own are named by overlays once they are built.
    assert f"legato:local@{DIGEST}" not in (copy / "docker-compose.yml").read_text()
    before = (copy / "Dockerfile").read_text()
    pin(copy, registry)
    assert (copy / "Dockerfile").read_text() == before


def test_registry_that_does_not_answer_changes_nothing(copy: Path) -> None:
    before = read_references(copy)
    for command in ("false", "echo latest"):
        with pytest.raises(SystemExit):
            pin(copy, command)
    assert read_references(copy) == before


def test_image_that_differs_from_the_lock_or_is_not_pinned_is_told(copy: Path) -> None:
    pin(copy, f"{sys.executable} -c 'print(\"{DIGEST}\")'")
    compose = copy / "docker-compose.yml"
    compose.write_text(compose.read_text().replace(f"haproxy:3.2@{DIGEST}", "haproxy:3.3"))
    assert find_differences(copy, needs_digests=True) == [
        f"haproxy:3.2 is in {LOCK}, but no file names it",
        f"haproxy:3.3 is named with -, but {LOCK} has None",
    ]
    (copy / LOCK).write_text((copy / LOCK).read_text().replace(f"haproxy:3.2 {DIGEST}", "haproxy:3.3 -"))
    assert find_differences(copy, needs_digests=False) == []
    assert find_differences(copy, needs_digests=True) == ["haproxy:3.3 has no digest: make pin-images"]

"""What lock files and images consist of, as CycloneDX documents."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deploy.release.sbom import describe, find_unlocked, read_packages

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
LISTED = """\
deb libc6 2.36-9+deb12u13 arm64
deb base-files 12.4+deb12u12 arm64
pypi legato 0.3.0.dev0
pypi typing_extensions 4.16.0
"""
LOCK = "typing-extensions==4.16.0 \\\n    --hash=sha256:00\n"


def purls(document: str) -> list[str]:
    return [component["purl"] for component in json.loads(document)["components"]]


def test_document_of_a_lock_file_has_its_packages_and_no_other(tmp_path: Path) -> None:
    subprocess.run(
        ["make", "sbom", f"SBOM={tmp_path}", "IMAGE="], cwd=ROOT, check=True, capture_output=True, timeout=300
    )
    for name in ("run", "local-model"):
        document = (tmp_path / f"{name}.cdx.json").read_text()
        lock = (ROOT / "requirements" / f"{name}.lock").read_text()
        locked = re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)
        assert len(locked) >= 3
        assert sorted(purls(document)) == sorted(f"pkg:pypi/{name}@{version}" for name, version in locked)
        # Each file that may be installed, by its hash.
        assert document.count('"SHA-256"') == lock.count("--hash=sha256:")


def test_document_of_an_image_has_its_packages_and_is_the_same_again() -> None:
    packages = list(read_packages(LISTED))
    document = describe("legato:0.3.0", packages)
    assert sorted(purls(document)) == [
        "pkg:deb/debian/base-files@12.4%2Bdeb12u12?arch=arm64",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=arm64",
        "pkg:pypi/legato@0.3.0.dev0",
        "pkg:pypi/typing-extensions@4.16.0",
    ]
    assert describe("legato:0.3.0", reversed(packages)) == document


@pytest.mark.parametrize(("lock", "unlocked"), [(LOCK, []), (LOCK.replace("4.16", "4.15"), ["typing-extensions"])])
def test_package_of_an_image_that_is_not_locked_is_found(lock: str, unlocked: list[str]) -> None:
    assert [package.name for package in find_unlocked(read_packages(LISTED), lock)] == unlocked

"""Writes what an image consists of as a CycloneDX document, and checks that its Python packages are those of a lock
file.

    python -m deploy.release.sbom legato:1.2.3 requirements/run.lock > image.cdx.json
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

# Of the service itself, which no lock file has.
OWN_PACKAGES: Final = frozenset({"legato"})
_LIST: Final = (
    "dpkg-query -W -f 'deb ${Package} ${Version} ${Architecture}\\n' && python -c '"
    "import importlib.metadata as m;"
    '[print("pypi", d.metadata["Name"], d.version) for d in m.distributions()]'
    "'"
)
_LOCKED: Final = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^\s;]+)", re.MULTILINE)


class Package(NamedTuple):
    kind: str
    name: str
    version: str
    architecture: str = ""

    @property
    def url(self) -> PackageURL:
        if self.kind == "deb":
            return PackageURL("deb", "debian", self.name, self.version, {"arch": self.architecture})
        return PackageURL("pypi", None, self.name, self.version)


def normalized(name: str) -> str:
    """Returns the name of a Python package as lock files have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_packages(listed: str) -> Iterator[Package]:
    for line in listed.splitlines():
        kind, name, *rest = line.split()
        yield Package(kind, normalized(name) if kind == "pypi" else name, *rest)


def find_unlocked(packages: Iterable[Package], lock: str) -> list[Package]:
    """Returns the Python packages that the lock file does not have in this version."""
    locked = {(each["name"], each["version"]) for each in _LOCKED.finditer(lock)}
    found = (each for each in packages if each.kind == "pypi" and each.name not in OWN_PACKAGES)
    return [each for each in found if (each.name, each.version) not in locked]


def describe(image: str, packages: Iterable[Package]) -> str:
    """Returns the document, which is valid, and the same for the same packages."""
    # Takes seconds to import, which tests of other things need not wait for.
    from cyclonedx.validation.json import JsonStrictValidator

    bom = Bom(version=1)
    name, _, tag = image.rpartition(":")
    bom.metadata.component = Component(name=name, version=tag, type=ComponentType.CONTAINER, bom_ref=image)
    for package in sorted(packages):
        url = package.url
        library = Component(
            name=package.name, version=package.version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url)
        )
        bom.components.add(library)
        bom.register_dependency(bom.metadata.component, [library])
    bom.serial_number = None  # type: ignore[assignment]
    bom.metadata.timestamp = None  # type: ignore[assignment]
    document = JsonV1Dot6(bom).output_as_string(indent=2)
    if (mistake := JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)) is not None:
        raise ValueError(str(mistake))
    return document


def main() -> None:
    image, lock = sys.argv[1:]
    engine = shutil.which("podman") or shutil.which("docker") or sys.exit("There is neither podman nor docker.")
    command = [engine, "run", "--rm", "--network=none", "--entrypoint=/bin/sh", image, "-c", _LIST]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    packages = list(read_packages(listed))
    if unlocked := find_unlocked(packages, Path(lock).read_text()):
        sys.exit(f"{image} has packages that {lock} does not have: {', '.join(each.name for each in unlocked)}")
    sys.stdout.write(describe(image, packages) + "\n")


if __name__ == "__main__":
    main()

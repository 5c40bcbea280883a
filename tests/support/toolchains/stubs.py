"""Stubs of the chat service in other languages, by `buf generate` with plugins of their registries: `make stubs`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.toolchains.go import go_plugins
from tests.support.toolchains.node import node_environ, npm_ci

ROOT = Path(__file__).parents[3]
BUF = Path(sys.executable).with_name("buf")
TIMEOUT_S = 300


def typescript_stubs(folder: Path) -> Path:
    """Writes the stubs to the folder, beside the packages that they need; returns the folder of the programs of these
    packages, the compiler among them."""
    packages = npm_ci(ROOT / "requirements" / "typescript", "typescript") / "node_modules"
    programs = packages / ".bin"
    _generate("typescript", folder, programs, node_environ())
    link = folder / "node_modules"
    if not link.exists():
        link.symlink_to(packages)
    return programs


def go_stubs(workspace: Path) -> None:
    """Writes the stubs to the folder `src` of the workspace."""
    _generate("go", workspace / "src", go_plugins(), dict(os.environ))


def _generate(language: str, folder: Path, plugins: Path, environ: dict[str, str]) -> None:
    command = [str(BUF), "generate", "--template", f"buf.gen.{language}.yaml", "--output", str(folder.resolve())]
    path = f"{plugins}{os.pathsep}{environ['PATH']}"
    subprocess.run(command, cwd=ROOT, env={**environ, "PATH": path}, check=True, timeout=TIMEOUT_S)


def main() -> None:
    folder = ROOT / "build" / "stubs"
    write: Callable[[Path], object]
    for language, write in (("typescript", typescript_stubs), ("go", go_stubs)):
        write(folder / language)
        sys.stdout.write(f"{folder.relative_to(ROOT) / language}\n")


if __name__ == "__main__":
    main()

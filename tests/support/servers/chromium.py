"""A browser for tests: the installed one, or Debian's chromium-headless-shell unpacked into a folder of our own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.servers.debian import FOLDER, Program, is_unpacked

PACKAGE = "chromium-headless-shell"
# Without a font, text has no width.
FONTS = "fonts-liberation"
FAMILIES = {
    "system-ui": "Liberation Sans",
    "sans-serif": "Liberation Sans",
    "monospace": "Liberation Mono",
    "ui-monospace": "Liberation Mono",
}
# The program itself: the script in usr/bin names it by an absolute path.
BINARY = Path("usr/lib/chromium/chromium-headless-shell")


def find_chromium() -> Program:
    """Returns the headless shell. Skips the test on a machine that has neither it nor access to Debian's packages, such
    as a developer's Mac: no browser can be set up there."""
    if installed := shutil.which(PACKAGE):
        return Program(installed)
    folder = FOLDER / PACKAGE
    if not (folder.exists() or is_unpacked(folder, _missing_packages())):
        pytest.skip(f"{PACKAGE} is not installed, and Debian's packages cannot be reached")
    libraries = {str(library.parent) for library in folder.rglob("lib*.so*")}
    environ = {
        "LD_LIBRARY_PATH": ":".join(sorted(libraries)),
        "FONTCONFIG_FILE": str(_font_settings(folder)),
        "HOME": str(folder),
    }
    return Program(str(folder / BINARY), environ)


def _missing_packages() -> tuple[str, ...]:
    """Returns the package and what this machine lacks of its dependencies, in apt's own words."""
    try:
        planned = subprocess.run(
            ["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE, FONTS],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (PACKAGE,)
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    return (PACKAGE, *(name for name in names if name != PACKAGE))


def _font_settings(folder: Path) -> Path:
    """Writes a fontconfig file that names the unpacked fonts beside the machine's own."""
    file = folder / "fonts.conf"
    text = (
        '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "fonts.dtd">\n<fontconfig>\n'
        f"  <dir>{folder}/usr/share/fonts</dir>\n  <dir>/usr/share/fonts</dir>\n"
        f"  <cachedir>{folder}/font-cache</cachedir>\n"
        + "".join(
            f'  <match target="pattern"><test name="family"><string>{family}</string></test>'
            f'<edit name="family" mode="prepend" binding="strong"><string>{font}</string></edit></match>\n'
            for family, font in FAMILIES.items()
        )
        + "</fontconfig>\n"
    )
    if not file.exists() or file.read_text() != text:
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(file)
    return file

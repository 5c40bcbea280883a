"""Named failpoints at which tests can kill a process, to show that it recovers.

`LEGATO_FAILPOINTS` names a folder. A test writes a file `NAME` into it that holds a number; the process that reaches
the failpoint of that name for that many-th time removes the file and ends itself with SIGKILL. Without the variable a
failpoint costs next to nothing.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

VARIABLE: Final = "LEGATO_FAILPOINTS"

# Whether failpoints are enabled.
watched = False
_folder = Path()


def watch(folder: str | None) -> None:
    """Enables failpoints, once, when the process starts."""
    global watched, _folder, hit  # noqa: PLW0603 - one process has one set of places
    watched = bool(folder)
    _folder = Path(folder or "")
    hit = _hit if watched else _ignore


def _hit(name: str, last_deed: Callable[[], object] | None = None) -> None:
    if _is_wanted(_folder / name):
        if last_deed is not None:
            last_deed()
        os.kill(os.getpid(), signal.SIGKILL)


# Finds nothing and does nothing, at a fraction of the cost of a function of ours: a chat has a dozen failpoints.
_ignore: Callable[..., object] = {}.get

# Kills the process if a test requests it: `hit(name, last_deed=None)`, of which `last_deed` runs just before, to leave
# something half done.
hit: Callable[..., object] = _ignore


def _is_wanted(order: Path) -> bool:
    try:
        times = int(order.read_text() or 1)
        if times > 1:
            order.write_text(str(times - 1))
            return False
        order.unlink()
    except FileNotFoundError:
        return False
    return True

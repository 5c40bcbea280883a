"""Named places at which a process can be made to die, so that it can be shown that it may die there.

`LEGATO_FAILPOINTS` names a folder. Whoever tests writes a file `NAME` into it with a number in it; the process that
comes to the place of that name for that many-th time takes the file away and ends itself with SIGKILL. Without the
variable a place costs next to nothing.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

VARIABLE: Final = "LEGATO_FAILPOINTS"

# Whether anybody could want this process to die at all.
watched = False
_folder = Path()


def watch(folder: str | None) -> None:
    """Call it once, when the process starts."""
    global watched, _folder  # noqa: PLW0603 - one process has one set of places
    watched = bool(folder)
    _folder = Path(folder or "")


def are_watched() -> bool:
    """For whoever would have to work to know the name of a place."""
    return watched


def hit(name: str, last_deed: Callable[[], object] | None = None) -> None:
    """Die here, if somebody wants it; `last_deed` is done just before, to leave something half done."""
    if watched and _is_wanted(_folder / name):
        if last_deed is not None:
            last_deed()
        os.kill(os.getpid(), signal.SIGKILL)


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

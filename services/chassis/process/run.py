"""The beginning and the end of a process."""

import os
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from services.chassis.errors import LegatoError
from services.chassis.process import failpoints, lifeline, memory
from services.chassis.settings import SettingsError

# A connection of a client takes one, and so does one to a provider.
MOST_DESCRIPTORS: Final = 65536


def run(name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Exits with 2 if the settings are wrong, every mistake on a line; with 1 if it cannot start for another reason."""
    memory.keep_from_disk()
    lifeline.hold()
    allow_many_connections()
    failpoints.watch(os.environ.get(failpoints.VARIABLE))
    try:
        uvloop.run(main())
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except LegatoError as error:
        # What is for whoever starts the process, and for no client, is in the notes.
        sys.exit(f"{name}: {' '.join(getattr(error, '__notes__', [])) or error.message}")


def allow_many_connections() -> None:
    """Systems begin with 1,024, for programs that can count no further; a process that can may ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

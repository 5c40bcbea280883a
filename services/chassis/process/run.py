"""Runs a process from start to exit."""

import os
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import Final

import uvloop

from services.chassis.errors import LegatoError
from services.chassis.process import failpoints, lifeline, memory
from services.chassis.settings import SettingsError

# Each connection of a client takes one, and so does each one to a provider.
MOST_DESCRIPTORS: Final = 65536


def run(name: str, main: Callable[[], Coroutine[object, None, None]]) -> None:
    """Runs `main`; exits with 2 if the settings are wrong, one mistake per line, and with 1 if it cannot start."""
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
        # Notes are for the operator, and never reach a client.
        sys.exit(f"{name}: {' '.join(getattr(error, '__notes__', [])) or error.message}")


def allow_many_connections() -> None:
    """Raises the limit of open files, of which systems allow 1,024 by default for the sake of select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

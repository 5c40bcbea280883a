"""The beginning and the end of a process."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from services.chassis import failpoints, lifeline, memory
from services.chassis.errors import LegatoError
from services.chassis.settings import SettingsError


def run(name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Exits with 2 if the settings are wrong, every mistake on a line; with 1 if it cannot start for another reason."""
    memory.keep_from_disk()
    lifeline.hold()
    failpoints.watch(os.environ.get(failpoints.VARIABLE))
    try:
        uvloop.run(main())
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except LegatoError as error:
        sys.exit(f"{name}: {error.message}")

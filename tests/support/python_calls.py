"""Counts calls of Python functions: a measure of work that no other load on the machine changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], object]) -> int:
    """Runs `work` and returns how many functions of Python it called, without itself. The garbage collector waits:
    tools of tests have it call functions of theirs, whenever it is time."""
    calls = -1

    def record(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return calls

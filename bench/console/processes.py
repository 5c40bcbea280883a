"""Reads what the processes of a running service spend on pages."""

import os
import re
import time
from pathlib import Path
from typing import Final

from tests.e2e.running.test_console import Visitor, new_key
from tests.support.up import Up

TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
KIB_IN_MIB: Final = 1024
_KEY: Final = re.compile(r"sk-legato-([0-9A-Za-z]{16})")


def memory_mib(up: Up, process: str) -> float:
    """Returns the memory that a process adds to the machine (proportional set size)."""
    rollup = Path(f"/proc/{up.processes()[process]['pid']}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1]) / KIB_IN_MIB


def cpu_ms_of_views(up: Up, visitor: Visitor, path: str, views: int) -> float:
    """Returns the processor time of all processes for one view of a page, less what they spend while idle."""
    visitor.ask("GET", path)
    began_s, before_ms = time.monotonic(), _cpu_ms(up)
    for _ in range(views):
        visitor.ask("GET", path)
    took_s, spent_ms = time.monotonic() - began_s, _cpu_ms(up) - before_ms
    idle_before_ms = _cpu_ms(up)
    time.sleep(took_s)
    return (spent_ms - (_cpu_ms(up) - idle_before_ms)) / views


def revocation_ms(visitor: Visitor, times: int) -> list[float]:
    """Creates keys and revokes them; returns how long each answer took, which comes when every edge refuses the key."""
    took_ms = []
    for number in range(times):
        fields = new_key("figures", f"figures{number}")
        found = _KEY.search(visitor.ask("POST", "/keys", fields)[1])
        assert found
        began_s = time.monotonic()
        status, _ = visitor.ask("POST", f"/keys/key_{found[1]}/revoke")
        took_ms.append(1000 * (time.monotonic() - began_s))
        assert status == 303
    return took_ms


def _cpu_ms(up: Up) -> float:
    return sum(_cpu_ms_of(one["pid"]) for one in up.processes().values())


def _cpu_ms_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

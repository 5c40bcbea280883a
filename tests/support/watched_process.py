"""Watches another process: the processor time of its event loop, and its memory.

Processor time, not the time of day: so a busy machine changes nothing.
"""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROBE_EACH_S: Final = 0.03
WAIT_TIMEOUT_S: Final = 120.0


class WatchedProcess:
    def __init__(self, process_id: int) -> None:
        self.process_id = process_id

    def processor_s(self) -> float:
        """Processor time of the loop's thread."""
        fields = Path(f"/proc/{self.process_id}/task/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def begin_peak(self) -> int:
        """Returns its memory now; its peak counts from here."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process_id}/clear_refs").write_text("5")
        return self.bytes_in("VmRSS")

    def peak_bytes(self) -> int:
        return self.bytes_in("VmHWM")

    def bytes_in(self, field: str) -> int:
        status = Path(f"/proc/{self.process_id}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0

    @contextlib.contextmanager
    def probed(self, address: tuple[str, int], question: bytes) -> Iterator["Probe"]:
        probe = Probe(self, address, question)
        probe.start()
        try:
            yield probe
        finally:
            probe.stop()


class Probe(threading.Thread):
    """Asks something small over and over: what the process's thread works before it answers is how long it was held."""

    def __init__(self, process: WatchedProcess, address: tuple[str, int], question: bytes) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._address = address
        self._question = question
        self._ended = threading.Event()
        self._longest_s = 0.0
        self.answers = 0

    def take_longest_s(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.is_set():
            # A process that has died is reported by the part that sees it.
            with contextlib.suppress(OSError):
                self._ask_over_and_over()

    def _ask_over_and_over(self) -> None:
        with socket.create_connection(self._address, timeout=WAIT_TIMEOUT_S) as connection:
            while not self._ended.wait(PROBE_EACH_S):
                before_s = self._process.processor_s()
                connection.sendall(self._question)
                if not connection.recv(65536):
                    return
                self.answers += 1
                self._longest_s = max(self._longest_s, self._process.processor_s() - before_s)

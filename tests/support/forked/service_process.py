"""One process of the service as a fork of one that has imported it, and what it writes.

process = ServiceProcess("services.auth", {"LEGATO_DATA": str(folder)})
process.wait_for("service.started")
code, written = process.stop()
"""

import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.forked.forked_process import ForkedProcess
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

_LARGEST_READ_BYTES = 1 << 20


class ServiceProcess:
    def __init__(self, module: str, settings: Mapping[str, str]) -> None:
        """Settings of the person who runs the tests are not for this process."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._output, name = tempfile.mkstemp()
        self._process = ForkedProcess.start_module(module, {**own, **settings}, Path(name))
        Path(name).unlink()
        self._read_bytes = 0
        self._unread = b""

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def next_line(self) -> str | None:
        """Returns the next line that it wrote, on whichever of its two outputs; None while there is none."""
        is_over = self._process.poll() is not None
        received = os.pread(self._output, _LARGEST_READ_BYTES, self._read_bytes)
        self._read_bytes += len(received)
        self._unread += received
        line, end, rest = self._unread.partition(b"\n")
        if end:
            self._unread = rest
            return line.decode()
        assert not is_over, f"the process has ended:\n{self._written()}"
        return None

    def wait_for(self, text: str) -> str:
        """Returns the next line that has this text."""

        def found() -> str | None:
            while (line := self.next_line()) is not None:
                if text in line:
                    return line
            return None

        line = wait_until(found)
        assert line is not None
        return line

    def stop(self) -> tuple[int, str]:
        self.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> tuple[int, str]:
        """Waits until it ends; returns the exit code, and all that it wrote."""
        code = self._process.wait(WAIT_TIMEOUT_S)
        written = self._written()
        self.close()
        return code, written

    def close(self) -> None:
        """Kills it if it still runs."""
        if self._output >= 0:
            self._process.kill()
            self._process.wait(WAIT_TIMEOUT_S)
            os.close(self._output)
            self._output = -1

    def _written(self) -> str:
        return os.pread(self._output, os.fstat(self._output).st_size, 0).decode()

"""Shows that a process works, or could not, though it does not answer."""

import os
from pathlib import Path
from typing import Final

# More beats than come between two looks.
_READ_BYTES: Final = 4096


class Pulse:
    """The pipe to which all runs of a process write while they work: see `services/chassis/process/pulse.py`."""

    def __init__(self) -> None:
        self._beaten, self.beating = os.pipe()
        os.set_blocking(self._beaten, False)

    def has_beaten(self) -> bool:
        """Returns whether the process's event loop has turned since the last time that this was asked."""
        try:
            return len(os.read(self._beaten, _READ_BYTES)) > 0
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._beaten)
        os.close(self.beating)


def starved_s(process_id: int) -> float:
    """Returns for how long the main thread of a process was ready to run, and got no processor; 0 where the kernel does
    not tell."""
    try:
        return int(Path(f"/proc/{process_id}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0

"""Ends a process when the supervisor that started it has ended, for whatever reason.

The supervisor keeps the only write end of a pipe and passes the read end to its children. Nothing is ever written; when
the last writer has ended, even by SIGKILL, every reader gets end of file.
"""

import os
import signal
import threading
import time

VARIABLE = "LEGATO_LIFELINE_FD"

# How long a graceful shutdown may take before a second SIGTERM, which ends it without waiting for running requests.
GRACE_S = 4.0
# How long it may then take to notify its clients, before it exits at once.
FAREWELL_S = 1.0


def hold() -> None:
    """Starts watching the pipe; call it first. Does nothing in a process that was started by hand."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return
    lifeline = int(given)
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    for wait_s in (GRACE_S, FAREWELL_S):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(wait_s)
    os._exit(1)

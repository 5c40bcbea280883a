"""Becomes another program that dies with its parent: see `child.py`, which starts it.

A program of its own, because a process with gRPC in it must not run code between fork and exec.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    last_signal, parent, user_id = map(int, sys.argv[1:4])
    if user_id >= 0:
        os.setgroups([])
        os.setgid(user_id)
        os.setuid(user_id)
    if sys.platform == "linux":
        # After the change of user, which clears it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, last_signal)
    if os.getppid() != parent:
        sys.exit(1)
    os.chdir("/")
    os.execv(sys.argv[4], sys.argv[4:])

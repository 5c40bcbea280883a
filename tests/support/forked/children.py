"""What a forked process does first, and last."""

import atexit
import ctypes
import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
# Above the descriptors that anybody has, below the usual limit.
_HIGH: Final = 512


def end_with_parent(number: signal.Signals, parent: int) -> None:
    """Has the kernel send a signal when the parent, of this id, ends; exits if it has ended already."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_descendants() -> None:
    """Makes this process the parent of those whose own parent ends, if they descend from it."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def become(main: Callable[[], object], environ: Mapping[str, str], kept: Mapping[int, int]) -> NoReturn:
    """Runs `main` as a program of its own would be: with its environment, and no descriptor but the `kept` ones, its
    output among them, which are given by the number that each shall have. Never returns, so nothing of the parent's
    stack runs."""
    exit_code = 1
    try:
        _keep_descriptors({0: os.open(os.devnull, os.O_RDONLY), **kept})
        os.environ.clear()
        os.environ.update(environ)
        # As PYTHONUNBUFFERED does.
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        main()
        exit_code = 0
    except SystemExit as end:
        exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        # As the interpreter does at its end, which is not reached: the log writes there what it holds.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _keep_descriptors(kept: Mapping[int, int]) -> None:
    high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for number, fd in kept.items()}
    os.closerange(0, _HIGH)
    for number, fd in high.items():
        os.dup2(fd, number)
    os.closerange(_HIGH, 2 * _HIGH)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")

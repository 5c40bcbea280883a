"""Keeps a long-running process working when its stdin, stdout or stderr is closed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


def open_closed_ones() -> None:
    """Opens closed standard streams on /dev/null, since the next opened file would take their descriptors."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


@contextmanager
def ignoring_closed(stream: TextIO | None) -> Iterator[None]:
    """Ignores write errors on a stream whose reader is gone."""
    try:
        yield
    except OSError:
        if stream is not None:
            # Otherwise the buffer would be flushed again at exit, and fail then.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

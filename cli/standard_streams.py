"""stdin, stdout and stderr of a process that runs for long, whoever else has closed them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


def open_closed_ones() -> None:
    """A number that is free is given to the next file, and whoever is started has its input or its output there."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


@contextmanager
def heard_or_not(stream: TextIO | None) -> Iterator[None]:
    """What is written to somebody who has left is lost, and ends nothing."""
    try:
        yield
    except OSError:
        if stream is not None:
            # Else it would be tried once more, as the process ends, and be a failure then.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

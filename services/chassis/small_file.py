"""Reads small regular files that somebody else names: no pipe or device is waited for, and no large file fills the
memory."""

import errno
import io
import os
import stat
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1024 * 1024
_NOT_REGULAR: Final = "not a regular file"


def read_small_file(path: Path) -> str:
    """Raises OSError, whose `strerror` says why, or UnicodeDecodeError."""
    # Opening a device may have effects of its own.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    # If the file has become a pipe meanwhile, its writer is not waited for.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 1024**2} MiB", str(path))
    # With the line ends that a text has in the program, as of a file that is read as text.
    return io.TextIOWrapper(io.BytesIO(content), "utf-8").read()

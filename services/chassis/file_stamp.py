"""Tells that a file was replaced or written to."""

from pathlib import Path

Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """Returns None if there is no such file. A mounted file is replaced by another one of the same name, mostly of the
    same size."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

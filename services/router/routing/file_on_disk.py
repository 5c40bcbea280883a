"""The routes file on disk: read with its digest, and replaced only if it is still the one that was read."""

import errno
import fcntl
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from services.chassis.settings import SettingsError


class ReadFile(NamedTuple):
    text: str
    digest: str


class FileNotWritable(Exception):
    """Says why in its text."""


class FileChanged(Exception):
    """The file is another one than was read."""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_file(path: Path) -> ReadFile:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SettingsError(f"The file cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingsError("The file is not text.") from None
    return ReadFile(text, digest_of(text))


def find_obstacle(path: Path) -> str:
    """Returns why the file cannot be replaced here, as far as that is known before it is tried; empty: it can."""
    if path.is_symlink():
        return "The file is a link, as of a mounted ConfigMap: change what it leads to."
    if not os.access(path.parent, os.W_OK):
        return "The folder of the file is read-only for the router."
    return ""


def replace_file(path: Path, text: str, base_digest: str) -> None:
    """Writes the text in place of the file with this digest, all of it or nothing; once more has no effect. Processes
    that share the file take turns. Raises FileChanged or FileNotWritable."""
    if obstacle := find_obstacle(path):
        raise FileNotWritable(obstacle)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            found = read_file(path)
        except SettingsError as error:
            raise FileNotWritable(str(error)) from None
        if found.digest == digest_of(text):
            return
        if found.digest != base_digest:
            raise FileChanged
        _write(path, text)
        os.fsync(folder)
    except OSError as error:
        what = "it is mounted by itself" if error.errno == errno.EBUSY else error.strerror
        raise FileNotWritable(f"The file cannot be replaced: {what}.") from None
    finally:
        os.close(folder)


def _write(path: Path, text: str) -> None:
    before = path.stat()
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, before.st_mode & 0o777)
            with suppress(PermissionError):
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fsync(descriptor)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise

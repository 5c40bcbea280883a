"""The data folder of one installation, and the files in it that the command line owns."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import click

# Linux allows 108 bytes with the closing zero; the longest name in the folder is that of a socket for the console.
LONGEST_SOCKET_PATH_BYTES = 107
LONGEST_SOCKET_NAME = "metering-console.sock"
# gRPC reads an address as a URI: other characters would be taken for something else.
PLAIN_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+~")

# Exists while restored databases are put in place: docs/runbooks/restore-the-database.md.
RESTORE_READY = Path("restoring", "ready.json")

LEAST_FREE_BYTES = 32 * 1024 * 1024
LOCK_TIMEOUT_S = 1.0


class DataFolderUnusable(click.ClickException):
    """Says what is wrong with the folder, and what to do."""


def sockets_folder(data: Path) -> Path:
    """Returns where the services of `data` listen: in it, or, if that is no valid socket path, in a private folder."""
    folder = data.absolute() / "run"
    longest = len(os.fsencode(folder / LONGEST_SOCKET_NAME))
    if longest <= LONGEST_SOCKET_PATH_BYTES and PLAIN_CHARACTERS.issuperset(str(folder)):
        return folder
    name = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:16]
    # Not TMPDIR: every command must find the folder, whatever its environment says.
    return Path("/tmp") / f"legato-{os.getuid()}-{name}"  # noqa: S108


def socket_of(process: str, data: Path) -> Path:
    return sockets_folder(data) / f"{process}.sock"


def prepare(data: Path) -> None:
    try:
        if not data.exists():
            data.mkdir(mode=0o700, parents=True)
        elif _is_ours(data):
            data.chmod(0o700)
        for folder in (data / "run", data / "logs", sockets_folder(data)):
            _make_private(folder)
        free = shutil.disk_usage(data).free
    except OSError as error:
        raise unusable(data, error) from error
    if free < LEAST_FREE_BYTES:
        raise DataFolderUnusable(
            f"{data} has {free // 1024} KB of free space, and Legato needs {LEAST_FREE_BYTES // 1024**2} MB to start: "
            "make room, or choose another folder with --data"
        )


def _is_ours(data: Path) -> bool:
    """Returns False for a folder with other content, which keeps its permissions; our files are private in any case."""
    return (data / "lock").exists() or not any(data.iterdir())


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise DataFolderUnusable(f"{folder} belongs to another user: remove it, or choose another folder with --data")
    folder.chmod(0o700)


def unusable(data: Path, error: OSError) -> DataFolderUnusable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataFolderUnusable(f"{data} has no free space: make room, or choose another folder with --data")
    return DataFolderUnusable(f"cannot use {data}: {error.strerror}: choose another folder with --data")


class AlreadyLocked(Exception):
    pass


def lock_for_supervisor(data: Path) -> int:
    # The timeout allows for `is_supervised`, which takes the lock for an instant.
    return lock_file(data / "lock", LOCK_TIMEOUT_S)


def lock_for_processes(data: Path, timeout_s: float) -> int:
    """Takes the lock that every process inherits: free when the last one ended."""
    return lock_file(data / "run" / "processes.lock", timeout_s)


def lock_file(path: Path, timeout_s: float) -> int:
    """Returns a descriptor that locks a file until it is closed: by every process that has it, however it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_at = time.monotonic() + timeout_s
    while not _try_lock(fd, fcntl.LOCK_EX):
        if time.monotonic() > give_up_at:
            os.close(fd)
            raise AlreadyLocked(str(path))
        time.sleep(0.05)
    return fd


def is_supervised(data: Path) -> bool:
    try:
        fd = os.open(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    is_free = _try_lock(fd, fcntl.LOCK_SH)
    os.close(fd)
    return not is_free


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_processes(data: Path, state: dict[str, object]) -> None:
    write_private(data / "run" / "processes.json", json.dumps(state))


def read_processes(data: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((data / "run" / "processes.json").read_text())
    return state


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes atomically, and syncs to disk: a reader finds the old file or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise

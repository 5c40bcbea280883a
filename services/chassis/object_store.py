"""Keeps objects that are written once, in a folder or in a bucket of S3, Google Cloud Storage or Azure.

Names are relative paths with `/`. All calls block; a service calls them on a thread. What fails raises an OSError:
FileExistsError and FileNotFoundError say what they do of files.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from obstore.store import ObjectStore as VendorStore

# Larger files are sent to a bucket in parts, which take turns in memory.
_PARTS_FROM_BYTES: Final = 32 * 1024 * 1024
# The vendor's default is minutes, for each call.
_RETRY_TIMEOUT: Final = timedelta(seconds=10)


class ObjectStore(Protocol):
    def put(self, name: str, content: bytes | Path) -> None:
        """Writes a new object, durably; one that exists is never replaced. Several writers of a name may not send
        files above 32 MiB: those are checked first, and then sent in parts."""

    def get(self, name: str) -> bytes: ...

    def save(self, name: str, path: Path) -> None:
        """Writes an object's content to a new file, without having it in memory at once."""

    def list(self, prefix: str = "", *, after: str = "") -> list[str]:
        """Returns the names below a folder, or all, in order: those after a name."""

    def delete(self, name: str) -> None: ...


def open_object_store(address: str | Path) -> ObjectStore:
    """Opens a folder, or a bucket by its URL, such as s3://BUCKET/PREFIX, whose credentials are in the variables that
    its vendor's tools read. Nothing is created before the first `put`."""
    if isinstance(address, str) and "://" in address and not address.startswith("file://"):
        return Bucket(address)
    return Folder(Path(str(address).removeprefix("file://")))


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, name: str, content: bytes | Path) -> None:
        path = self._of(name)
        _make_folder(path.parent)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with _new_file(unfinished) as descriptor:
                for piece in _pieces(content):
                    _write_all(descriptor, piece)
                os.fsync(descriptor)
            # A link is created whole or not at all, and never replaces a file.
            path.hardlink_to(unfinished)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def get(self, name: str) -> bytes:
        return self._of(name).read_bytes()

    def save(self, name: str, path: Path) -> None:
        with _new_file(path) as descriptor:
            for piece in _pieces(self._of(name)):
                _write_all(descriptor, piece)
            os.fsync(descriptor)

    def list(self, prefix: str = "", *, after: str = "") -> list[str]:
        below = self._of(prefix) if prefix else self._path
        files = (path for path in below.rglob("*") if path.is_file() and not path.name.startswith("."))
        names = (path.relative_to(self._path).as_posix() for path in files)
        return sorted(name for name in names if name > after)

    def delete(self, name: str) -> None:
        path = self._of(name)
        path.unlink()
        _sync_folder(path.parent)

    def _of(self, name: str) -> Path:
        if not _is_name(name):
            raise ValueError(f"{name!r} does not name an object")
        return self._path / name


class Bucket:
    def __init__(self, url: str) -> None:
        # A heavy import, for those alone who have a bucket.
        from obstore.store import from_url

        with _os_errors():
            self._store: VendorStore = from_url(url, retry_config={"max_retries": 3, "retry_timeout": _RETRY_TIMEOUT})

    def put(self, name: str, content: bytes | Path) -> None:
        import obstore

        with _os_errors():
            if isinstance(content, bytes) or content.stat().st_size < _PARTS_FROM_BYTES:
                obstore.put(self._store, name, content, mode="create")
                return
            with contextlib.suppress(FileNotFoundError):
                obstore.head(self._store, name)
                raise FileExistsError(name)
            obstore.put(self._store, name, content)

    def get(self, name: str) -> bytes:
        import obstore

        with _os_errors():
            return bytes(obstore.get(self._store, name).bytes())

    def save(self, name: str, path: Path) -> None:
        import obstore

        with _os_errors():
            found = obstore.get(self._store, name)
            with _new_file(path) as descriptor:
                for piece in found.stream():
                    _write_all(descriptor, piece)
                os.fsync(descriptor)

    def list(self, prefix: str = "", *, after: str = "") -> list[str]:
        import obstore

        with _os_errors():
            pages = obstore.list(self._store, prefix or None, offset=after or None)
            return sorted(found["path"] for page in pages for found in page)

    def delete(self, name: str) -> None:
        import obstore

        with _os_errors():
            obstore.delete(self._store, name)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raises the vendor's errors as those of files, in their first line: what follows is a dump of its structures."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(_first_line(error)) from None
    except FileNotFoundError as error:
        raise FileNotFoundError(_first_line(error)) from None
    except BaseError as error:
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_folder(path: Path) -> None:
    """Creates a folder and those above it, durably, for the owner alone."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(1024 * 1024):
            yield piece


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_name(name: str) -> bool:
    return all(part and not part.startswith(".") for part in name.split("/"))

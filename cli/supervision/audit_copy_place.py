"""Looks where auth's copy of the audit log is: what was revoked since a backup is ended again by it alone, so it should
not be lost together with the databases."""

from pathlib import Path


def same_disk_warning(data: Path, audit_copy: str, database_url: str) -> str | None:
    """Returns a sentence if the copy is on the disk of the SQLite files."""
    folder = local_copy(data, audit_copy)
    if database_url or folder is None or _disk_of(folder) != _disk_of(data):
        return None
    return (
        f"the copy of the audit log is in {folder}, on the disk of the databases: if that is lost, what was revoked "
        "since the last backup is valid again. Set LEGATO_AUDIT_COPY to a folder on another disk, or to a bucket"
    )


def missing_copy_warning(data: Path, audit_copy: str) -> str | None:
    """Returns a sentence if a restored database will find no copy in a folder of this machine."""
    folder = local_copy(data, audit_copy)
    if folder is None or any(folder.rglob("*.jsonl")):
        return None
    return (
        f"there is no copy of the audit log in {folder}: what was revoked since the backup will be valid again. If you "
        "have the copy, put it there, or name it in LEGATO_AUDIT_COPY, before you start"
    )


def local_copy(data: Path, audit_copy: str) -> Path | None:
    """Returns the folder of the copy; None: it is in a bucket, or there is none."""
    from services.auth.settings import NO_COPY

    path = audit_copy.removeprefix("file://")
    if path == NO_COPY or "://" in path:
        return None
    return Path(path) if path else data / "audit-copy"


def _disk_of(path: Path) -> int:
    """Returns the device of a path, or of where it will be created."""
    existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    return existing.stat().st_dev

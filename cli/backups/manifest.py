"""The manifest of a backup: what it has, and what it takes to restore it. It is written last: without one, a backup is
incomplete."""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import click
import msgspec

FILE: Final = "manifest.json"
FORMAT: Final = 1

# Whoever can write where backups are can write a manifest. What messages quote of it is plain and short.
Release = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z.+!_-]{1,64}\Z")]
Revision = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_]{0,32}\Z")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Variable = Annotated[str, msgspec.Meta(pattern=r"\ALEGATO_[A-Z_]{1,64}\Z")]
Fingerprints = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,9}:[0-9a-f]{1,64}(,[0-9]{1,9}:[0-9a-f]{1,64})*\Z")]


class BackupUnusable(click.ClickException):
    """Says why a backup cannot be made or restored."""


class BackupFile(msgspec.Struct, frozen=True):
    name: str
    size_bytes: Count
    sha256: Sha256


class BackedUpSchema(msgspec.Struct, frozen=True):
    """The version of a service's schema; both empty before its first migration by a release that keeps versions."""

    revision: Revision = ""
    # Programs that do not know this revision must not use the schema.
    oldest: Revision = ""


class BookTotals(msgspec.Struct, frozen=True):
    """Figures by which restored stores are recognised as those that were backed up."""

    accounts: Count
    keys: Count
    ledger_entries: Count
    balance_nanos: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    # The release that made it.
    legato: Release
    began_at: Annotated[datetime, msgspec.Meta(tz=True)]
    store: Literal["sqlite", "postgresql"]
    # By service.
    schemas: dict[str, BackedUpSchema]
    files: list[BackupFile]
    totals: BookTotals
    # Fingerprints of the secrets that the stores need, by setting, as VERSION:HEX with commas. The secrets themselves
    # are never in a backup.
    secrets: dict[Variable, Fingerprints]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def decode_manifest(content: bytes, where: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupUnusable(f"the manifest of {where} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise BackupUnusable(f"the manifest of {where} has format {manifest.format}, and this program reads {FORMAT}")
    return manifest


def describe_file(path: Path) -> BackupFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return BackupFile(path.name, path.stat().st_size, digest)


def require_same(path: Path, expected: BackupFile) -> None:
    found = describe_file(path)
    if found != expected:
        raise BackupUnusable(
            f"{expected.name} of the backup is damaged: {found.size_bytes:,} bytes with SHA-256 {found.sha256[:16]}…, "
            f"and the manifest says {expected.size_bytes:,} with {expected.sha256[:16]}…"
        )

import tempfile
from pathlib import Path

import pytest

from cli.supervision.audit_copy_place import missing_copy_warning, same_disk_warning


def test_a_copy_on_the_disk_of_the_databases_is_told(tmp_path: Path) -> None:
    for audit_copy in ("", str(tmp_path / "not" / "yet" / "there"), f"file://{tmp_path}/copy"):
        told = same_disk_warning(tmp_path / "data", audit_copy, "")
        assert told is not None
        assert "LEGATO_AUDIT_COPY" in told


@pytest.mark.parametrize("audit_copy", ["s3://audit/legato", "none"])
def test_a_bucket_and_no_copy_are_on_no_disk(tmp_path: Path, audit_copy: str) -> None:
    assert same_disk_warning(tmp_path, audit_copy, "") is None
    assert missing_copy_warning(tmp_path, audit_copy) is None


def test_a_copy_on_another_disk_than_the_databases_is_fine(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other_disk:
        assert same_disk_warning(tmp_path, other_disk, "") is None
    # The databases are on a server.
    assert same_disk_warning(tmp_path, "", "postgresql://legato@db/legato") is None


def test_a_copy_that_is_not_there_is_told_before_the_start_after_a_restore(tmp_path: Path) -> None:
    told = missing_copy_warning(tmp_path, "")
    assert told is not None
    assert str(tmp_path / "audit-copy") in told
    segment = tmp_path / "audit-copy" / "audit-events" / "1.jsonl"
    segment.parent.mkdir(parents=True)
    segment.touch()
    assert missing_copy_warning(tmp_path, "") is None

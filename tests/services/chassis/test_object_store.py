import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from services.chassis.object_store import Bucket, ObjectStore, open_object_store
from tests.support.servers.s3 import S3


@pytest.fixture(params=["folder", "bucket"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "objects")
        return
    s3: S3 = request.getfixturevalue("s3_server")
    with patch.dict(os.environ, s3.environ):
        yield f"{s3.new_bucket()}/some/prefix"


@pytest.fixture
def store(address: str) -> ObjectStore:
    return open_object_store(address)


def test_an_object_is_written_once_listed_read_and_deleted(store: ObjectStore, address: str) -> None:
    assert store.list() == []
    store.put("b/2", b"two")
    store.put("b/1", b"one")
    store.put("a", b"")
    again = open_object_store(address)
    assert again.list() == ["a", "b/1", "b/2"]
    assert again.list("b") == ["b/1", "b/2"]
    assert again.list("c") == []
    assert (again.get("b/2"), again.get("a")) == (b"two", b"")
    with pytest.raises(FileExistsError):
        again.put("b/1", b"other")
    assert store.get("b/1") == b"one"
    store.delete("b/1")
    assert store.list("b") == ["b/2"]
    with pytest.raises(FileNotFoundError):
        store.get("b/1")


def test_of_several_writers_of_a_name_one_wins(store: ObjectStore) -> None:
    def write(content: bytes) -> bool:
        try:
            store.put("name", content)
        except FileExistsError:
            return False
        return True

    contents = [str(number).encode() for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(write, contents))
    assert [content for content, has_won in zip(contents, won, strict=True) if has_won] == [store.get("name")]
    assert store.list() == ["name"]


def test_files_go_in_and_out_without_being_replaced(store: ObjectStore, tmp_path: Path) -> None:
    # With more than the parts of an upload.
    large, small, saved = tmp_path / "large", tmp_path / "small", tmp_path / "saved"
    large.write_bytes(os.urandom(1024) * 1024 * 33)
    small.write_bytes(b"small")
    for file in (large, small):
        store.put(f"files/{file.name}", file)
        with pytest.raises(FileExistsError):
            store.put(f"files/{file.name}", file)
        store.save(f"files/{file.name}", saved)
        assert saved.read_bytes() == file.read_bytes()
        with pytest.raises(FileExistsError):
            store.save(f"files/{file.name}", saved)
        saved.unlink()
    with pytest.raises(FileNotFoundError):
        store.save("files/none", saved)


def test_a_folder_keeps_its_objects_to_its_owner_and_inside_it(tmp_path: Path) -> None:
    store = open_object_store(f"file://{tmp_path}/objects")
    store.put("a/b", b"content")
    for path, mode in {"objects": 0o700, "objects/a": 0o700, "objects/a/b": 0o600}.items():
        assert (tmp_path / path).stat().st_mode & 0o777 == mode, path
    # An unfinished one of a process that was killed.
    (tmp_path / "objects/a/.c.12").write_bytes(b"half")
    assert store.list() == ["a/b"]
    for name in ("", "../b", "/b", "a//b", ".b", "a/"):
        with pytest.raises(ValueError, match="does not name an object"):
            store.put(name, b"")


def test_a_bucket_that_does_not_answer_is_an_error_of_one_line(s3_server: S3) -> None:
    with patch.dict(os.environ, s3_server.environ):
        missing = open_object_store("s3://no-such-bucket-of-ours")
        with pytest.raises(OSError, match="no-such-bucket-of-ours") as failure:
            missing.put("a", b"")
    assert isinstance(missing, Bucket)
    assert "\n" not in str(failure.value)
    with pytest.raises(OSError, match="nowhere"):
        open_object_store("nowhere://bucket")


def test_the_client_of_buckets_is_not_imported_for_a_folder(tmp_path: Path) -> None:
    script = (
        "import sys; from services.chassis.object_store import open_object_store;"
        f"open_object_store({str(tmp_path / 'objects')!r}).put('a', b'b');"
        "sys.exit(any(name.startswith('obstore') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

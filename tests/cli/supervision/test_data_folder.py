import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.supervision import data_folder
from cli.supervision.data_folder import AlreadyLocked, DataFolderUnusable, sockets_folder

LONG = "a-folder-with-a-rather-long-name/" * 4


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_sockets_are_in_the_folder_itself(socket_folder: Path) -> None:
    assert sockets_folder(socket_folder) == socket_folder / "run"


@pytest.mark.parametrize("name", [LONG, "with space", "per%cent", "quest?ion", "ünïcode"])
def test_sockets_of_a_folder_whose_name_does_not_fit_are_in_a_private_one(socket_folder: Path, name: str) -> None:
    folder = sockets_folder(socket_folder / name)
    assert folder.parent == Path("/tmp")
    assert len(os.fsencode(folder / data_folder.LONGEST_SOCKET_NAME)) <= 107
    assert folder == sockets_folder(socket_folder / name)
    assert folder != sockets_folder(socket_folder / (name + "2"))


def test_sockets_are_found_from_anywhere(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (socket_folder / LONG).mkdir(parents=True)
    monkeypatch.chdir(socket_folder / LONG)
    assert sockets_folder(Path("data")) == sockets_folder(socket_folder / LONG / "data")


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    data_folder.prepare(tmp_path / "deep" / "data")
    for folder in ("", "run", "logs"):
        assert mode(tmp_path / "deep" / "data" / folder) == 0o700


def test_a_folder_that_holds_other_things_keeps_its_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "routes.toml").touch()
    data_folder.prepare(tmp_path)
    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "run") == 0o700


def test_a_sockets_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Another user may have put it there, to listen in our place."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataFolderUnusable, match="belongs to another user"):
        data_folder.prepare(tmp_path)


def test_a_file_in_place_of_the_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DataFolderUnusable, match=r"cannot use .*/data: Not a directory: choose another folder"):
        data_folder.prepare(tmp_path / "data")


def test_a_folder_that_cannot_be_made_is_one_clear_line() -> None:
    with pytest.raises(DataFolderUnusable, match="choose another folder with --data"):
        data_folder.prepare(Path("/proc/legato"))


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    full = data_folder.unusable(tmp_path, OSError(28, "No space left on device"))
    assert full.message == f"{tmp_path} has no free space: make room, or choose another folder with --data"


def test_a_folder_is_locked_once(tmp_path: Path) -> None:
    data_folder.prepare(tmp_path)
    assert not data_folder.is_supervised(tmp_path)
    lock = data_folder.lock_for_supervisor(tmp_path)
    assert data_folder.is_supervised(tmp_path)
    with pytest.raises(AlreadyLocked):
        data_folder.lock_file(tmp_path / "lock", timeout_s=0)
    os.close(lock)
    assert not data_folder.is_supervised(tmp_path)


def test_the_processes_lock_is_free_when_the_last_process_that_inherited_it_ended(tmp_path: Path) -> None:
    data_folder.prepare(tmp_path)
    lock = data_folder.lock_for_processes(tmp_path, timeout_s=0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,)) as child:
        os.close(lock)
        with pytest.raises(AlreadyLocked):
            data_folder.lock_for_processes(tmp_path, timeout_s=0)
        child.communicate(b"\n")
    os.close(data_folder.lock_for_processes(tmp_path, timeout_s=0))


def test_the_state_is_written_whole(tmp_path: Path) -> None:
    data_folder.prepare(tmp_path)
    data_folder.write_processes(tmp_path, {"processes": [1]})
    data_folder.write_processes(tmp_path, {"processes": [1, 2]})
    assert data_folder.read_processes(tmp_path) == {"processes": [1, 2]}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["processes.json"]
    assert json.loads((tmp_path / "run" / "processes.json").read_text()) == {"processes": [1, 2]}


def test_a_lock_is_waited_for_while_it_is_about_to_be_released(tmp_path: Path) -> None:
    held = data_folder.lock_file(tmp_path / "lock", timeout_s=0)
    threading.Timer(0.1, os.close, [held]).start()
    os.close(data_folder.lock_file(tmp_path / "lock", timeout_s=20))

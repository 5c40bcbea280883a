"""`pytest --workers 2`, as `make test` calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

FIRST = """
import os
from pathlib import Path

def test_has_a_folder_and_an_output_of_its_own(tmp_path):
    assert tmp_path.exists()
    print("seen only if it fails")

def test_fails(tmp_path):
    print("seen, since it fails")
    assert {1: 2} == {1: 3}

def test_ends_its_worker():
    os._exit(3)

def test_after_the_end():
    Path("after").touch()
"""
SECOND = """
import atexit
import pytest
from pathlib import Path

@pytest.fixture(scope="session")
def opened():
    yield
    Path("closed").touch()

def test_of_another_module(opened):
    atexit.register(Path("exited").touch)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_first.py").write_text(FIRST)
    (tmp_path / "test_second.py").write_text(SECOND)
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.workers.plugin", "--workers", "2", *options]
    done = subprocess.run(
        [*command, "-q", "--rootdir", ".", "-c", "/dev/null", "."],
        cwd=folder,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_every_test_runs_and_one_that_ends_its_worker_has_failed(folder: Path) -> None:
    code, told = run(folder)
    assert code == 1, told
    assert "2 failed, 3 passed" in told
    assert "FAILED test_first.py::test_fails" in told
    assert "FAILED test_first.py::test_ends_its_worker - its worker ended with exit code 3" in told
    assert "Differing items" in told
    assert "seen, since it fails" in told
    assert "seen only" not in told
    assert (folder / "after").exists()


def test_fixtures_and_exits_of_a_worker_end(folder: Path) -> None:
    assert run(folder, "-k", "another")[0] == 0
    assert (folder / "closed").exists()
    assert (folder / "exited").exists()


def test_first_failure_ends_all_if_asked(folder: Path) -> None:
    code, told = run(folder, "-x", "-k", "fails or ends or after")
    assert code == 1, told
    assert "1 failed" in told
    assert not (folder / "after").exists()

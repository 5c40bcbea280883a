import subprocess
import sys
from pathlib import Path

import pytest

from cli.supervision import process_log
from cli.supervision.process_log import ProcessLog


def write(log: ProcessLog, text: str) -> None:
    with log.open() as file:
        file.write(text.encode())


def test_the_last_words_are_those_of_the_latest_run(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "auth")
    write(log, "an earlier mistake\n")
    write(log, "LEGATO_A is not set\nLEGATO_B is not set\n")
    assert log.last_words() == "LEGATO_A is not set; LEGATO_B is not set"
    assert log.path.read_text().startswith("an earlier mistake\n")


def test_of_a_traceback_its_last_line_is_quoted(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "auth")
    write(log, 'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: database or disk is full\n')
    assert log.last_words() == "OSError: database or disk is full"


def test_structured_logs_are_not_words(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "auth")
    write(log, '{"event": "service.started"}\n')
    assert log.last_words() == ""


def test_a_large_log_makes_room_at_the_next_start(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "auth")
    write(log, "x" * (process_log.LARGEST_BYTES + 1))
    write(log, "new\n")
    assert log.path.read_text() == "new\n"
    assert log.last_words() == "new"
    assert (tmp_path / "auth.log.1").stat().st_size == process_log.LARGEST_BYTES + 1


def test_first_line_of_a_run_stands_by_itself_where_the_last_run_was_killed_in_mid_line(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "router")
    for text in (b"whole\nhal", b"next\n", b"last\n"):
        with log.open() as file:
            file.write(text)
    assert log.path.read_text() == "whole\nhal\nnext\nlast\n"


def test_a_large_log_makes_room_while_its_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "LARGEST_BYTES", 1000)
    log = ProcessLog(tmp_path, "edge-1")
    program = (
        "import sys\nfor line in sys.stdin:\n    sys.stderr.write(line * 100); sys.stderr.flush(); print(flush=True)"
    )
    with (
        log.open() as output,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        rotated = []
        for number in range(6):
            process.stdin.write(f"line of run {number}\n")
            process.stdin.flush()
            # It has written what it was told to.
            process.stdout.readline()
            rotated.append(log.rotate())
            # What has become of it in between is of no size worth a rotation.
            assert not log.rotate()
        process.stdin.close()
    assert rotated == [True] * 6
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "edge-1.log": "",
        "edge-1.log.1": "line of run 5\n" * 100,
        "edge-1.log.2": "line of run 4\n" * 100,
        "edge-1.log.3": "line of run 3\n" * 100,
    }


def test_last_words_are_found_after_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "LARGEST_BYTES", 100)
    log = ProcessLog(tmp_path, "auth")
    write(log, "an earlier run\n")
    with log.open() as file:
        file.write(b"{}\n" * 100)
        file.flush()
        assert log.rotate()
        file.write(b"LEGATO_A is not set\n")
    assert log.last_words() == "LEGATO_A is not set"

from pathlib import Path

from cli import process_log
from cli.process_log import ProcessLog


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

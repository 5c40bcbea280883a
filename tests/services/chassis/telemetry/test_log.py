import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.chassis.telemetry.log import Log, open_log

CANARY = "what-was-said"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_is_an_event_with_fields(log: Log, log_text: Callable[[], str]) -> None:
    log.info("chat.settled", request_id="01", cost_nanos=7, stream=True)

    (line,) = lines(log_text())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "service": "test",
        "event": "chat.settled",
        "request_id": "01",
        "cost_nanos": 7,
        "stream": True,
    }


def test_a_field_that_is_not_listed_is_refused(log: Log, log_text: Callable[[], str]) -> None:
    with pytest.raises(ValueError, match="messages"):
        log.info("chat.started", request_id="01", messages=CANARY)

    assert log_text() == ""


def test_the_refusal_of_a_field_does_not_quote_its_value(log: Log) -> None:
    with pytest.raises(ValueError, match="prompt") as refused:
        log.debug("chat.started", prompt=CANARY)

    assert CANARY not in str(refused.value)


def test_a_failure_says_kind_and_place_but_not_the_text(log: Log, log_text: Callable[[], str]) -> None:
    def fail() -> None:
        raise RuntimeError(CANARY)

    try:
        fail()
    except RuntimeError as error:
        log.failure("chat.failed", error, request_id="01")

    (line,) = lines(log_text())
    assert line["error"].startswith("RuntimeError at ")
    assert f"{__file__}:{fail.__code__.co_firstlineno + 1}" in line["error"]
    assert CANARY not in log_text()


def test_a_failure_says_what_it_came_from(log: Log, log_text: Callable[[], str]) -> None:
    try:
        try:
            raise KeyError(CANARY)
        except KeyError as error:
            raise RuntimeError(CANARY) from error
    except RuntimeError as error:
        log.failure("batch.failed", error)

    assert "RuntimeError from KeyError at " in log_text()
    assert CANARY not in log_text()


def test_a_failure_that_was_never_raised_has_a_kind_only(log: Log, log_text: Callable[[], str]) -> None:
    log.failure("chat.failed", KeyError(CANARY))

    assert lines(log_text())[0]["error"] == "KeyError"


def test_debug_is_silent_unless_asked_for() -> None:
    stream = io.StringIO()

    Log("test", stream).debug("chat.started")

    assert stream.getvalue() == ""


def test_a_stream_that_cannot_be_written_ends_nothing() -> None:
    stream = io.StringIO()
    stream.close()

    Log("test", stream).info("chat.started")


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Puts the process's logging back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = threading.excepthook, sys.unraisablehook
    yield
    threading.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
def test_what_libraries_log_is_kept_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    open_log("test")
    library = logging.getLogger("some.library")

    library.warning("got %s", CANARY)
    try:
        raise OSError(CANARY)
    except OSError:
        library.exception("failed with %s", CANARY)
    library.info("not even this: %s", CANARY)

    text = capsys.readouterr().err
    assert [(line["event"], line["logger"]) for line in lines(text)] == [("library.logged", "some.library")] * 2
    assert [line["error"].partition(" ")[0] for line in lines(text)] == ["WARNING", "OSError"]
    assert CANARY not in text


UNCAUGHT = """
import threading, warnings
from services.chassis.telemetry.log import open_log

class Ending:
    def __del__(self):
        raise ValueError("what-was-said")

def fail():
    raise KeyError("what-was-said")

open_log("test")
Ending()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
warnings.warn("what-was-said")
"""


def test_what_is_not_caught_or_warned_of_is_told_without_its_text() -> None:
    ended = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, check=True)
    told = [(line["event"], line["error"].partition(" ")[0]) for line in lines(ended.stderr)]
    assert told == [
        ("exception.uncaught", "ValueError"),
        ("exception.uncaught", "KeyError"),
        ("library.logged", "WARNING"),
    ]
    assert CANARY not in ended.stderr


async def test_lines_that_gather_are_written_soon_and_in_order() -> None:
    stream = io.StringIO()
    log = Log("test", stream, gathers=True)
    log.info("chat.ended", request_id="01")
    log.info("chat.ended", request_id="02")
    assert stream.getvalue() == ""
    async with asyncio.timeout(60):
        while not stream.getvalue():
            await asyncio.sleep(0.01)
    assert [line["request_id"] for line in lines(stream.getvalue())] == ["01", "02"]


async def test_warning_does_not_wait_and_brings_what_was_gathered_before_it() -> None:
    stream = io.StringIO()
    log = Log("test", stream, gathers=True)
    log.info("chat.ended")
    log.warning("settlement.pending")
    assert [line["event"] for line in lines(stream.getvalue())] == ["chat.ended", "settlement.pending"]


def test_without_an_event_loop_nothing_is_gathered() -> None:
    stream = io.StringIO()
    Log("test", stream, gathers=True).info("edge.started")
    assert [line["event"] for line in lines(stream.getvalue())] == ["edge.started"]


FULL_FOR_A_WHILE = """
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from services.chassis.telemetry.log import Log
log, limits = Log("test"), getrlimit(RLIMIT_FSIZE)
setrlimit(RLIMIT_FSIZE, (20, limits[1]))
log.info("chat.settled")
setrlimit(RLIMIT_FSIZE, limits)
log.info("chat.ended")
log.info("chat.ended")
"""


def test_line_that_a_full_disk_cuts_does_not_spoil_the_next(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as file:
        subprocess.run([sys.executable, "-u", "-c", FULL_FOR_A_WHILE], stderr=file, check=True)
    cut, *whole = (tmp_path / "log").read_text().splitlines()
    assert len(cut) == 20
    assert [json.loads(line)["event"] for line in whole] == ["chat.ended"] * 2

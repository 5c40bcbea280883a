import json

import pytest

from legato_protos.auth.v1 import auth_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import play

ON = auth_pb2.Maintenance(is_on=True, message="Back at noon.", retry_after_s=300)
ON.start_time.FromSeconds(86_400)
STARTED = ("auth", "AuthService.StartMaintenance", auth_pb2.StartMaintenanceResponse(maintenance=ON))
OFF = {"maintenance": "off", "message": None, "retry_after_s": None, "started_at": None}


def test_on_says_what_clients_are_told() -> None:
    far_end = play(STARTED)
    result = far_end.run("maintenance", "on", "--message", "Back at noon.", "--retry-after", "300", "--json")
    assert json.loads(result.stdout) == {
        "maintenance": "on",
        "message": "Back at noon.",
        "retry_after_s": 300,
        "started_at": "1970-01-02T00:00:00Z",
    }
    assert (far_end.requests[0].message, far_end.requests[0].retry_after_s) == ("Back at noon.", 300)


def test_on_needs_no_message() -> None:
    far_end = play(STARTED)
    assert far_end.run("maintenance", "on").exit_code == 0
    assert "maintenance" in far_end.requests[0].message
    assert far_end.requests[0].retry_after_s == 60


@pytest.mark.parametrize(
    ("command", "method", "answer"),
    [
        ("off", "EndMaintenance", auth_pb2.EndMaintenanceResponse(maintenance=auth_pb2.Maintenance())),
        ("status", "GetMaintenance", auth_pb2.GetMaintenanceResponse(maintenance=auth_pb2.Maintenance())),
    ],
)
def test_off_is_told_as_such(command: str, method: str, answer: object) -> None:
    result = play(("auth", f"AuthService.{method}", answer)).run("maintenance", command, "--json")
    assert json.loads(result.stdout) == OFF


def test_message_that_is_refused_is_told_in_one_line() -> None:
    refusal = LegatoError(
        Reason.REQUEST_INVALID, Sentence.verbatim("A message must have 1 to 500 characters."), param="message"
    )
    result = play((*STARTED[:2], refusal)).run("maintenance", "on", "--message", "x" * 501)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("seconds", ["0", "86401", "soon"])
def test_time_that_is_none_is_misuse(seconds: str) -> None:
    assert play().run("maintenance", "on", "--retry-after", seconds).exit_code == 2

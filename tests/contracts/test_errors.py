"""The public interface's errors and the page of errors, against the one table that the code has."""

import re
from pathlib import Path

import msgspec
import pytest

from edge.api.description import EXAMPLES
from edge.wire.responses import error_body
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# Status, type, and the reasons that the interface gives for it.
DOCUMENTED = [
    (400, "invalid_request_error", [Reason.REQUEST_INVALID, Reason.MODEL_UNKNOWN]),
    (401, "authentication_error", [Reason.KEY_INVALID]),
    (402, "insufficient_quota", [Reason.CREDITS_EXHAUSTED]),
    (403, "permission_error", [Reason.SCOPE_MISSING]),
    (404, "invalid_request_error", [Reason.MODEL_NOT_FOUND]),
    (429, "rate_limit_error", [Reason.RATE_LIMITED, Reason.SATURATED, Reason.CREDITS_HELD]),
    (502, "api_error", [Reason.UPSTREAM_FAILED]),
]

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \|(?: (\d{3}) \| `(\w+)` \| (?:`(\w+)`|\S) \|)?", re.MULTILINE)
EXAMPLE = re.compile(r"^\| `(\w+)` \| `\w+` \| \d{3} \|.* \| ([^|]+) \|$", re.MULTILINE)
# Of reasons that only gRPC gives.
OVER_HTTP = ("500", "api_error", "internal_error")


def test_page_names_every_reason_with_its_codes_and_no_other() -> None:
    told = {}
    for reason, grpc_code, *over_http in ROW.findall(PAGE.read_text()):
        assert reason not in told
        told[reason] = (grpc_code, *(over_http if any(over_http) else OVER_HTTP))
    wires = {reason.value: reason.wire for reason in Reason}
    assert told == {
        reason: (wire.grpc_code.name, str(wire.http_status), wire.type, wire.code or "")
        for reason, wire in wires.items()
    }


def test_page_shows_the_words_of_the_table_as_the_description_of_the_interface_does() -> None:
    shown = dict(EXAMPLE.findall(PAGE.read_text()))
    assert shown == {reason.value: str(sentence) for reason, sentence in EXAMPLES.items()}


@pytest.mark.parametrize(("http_status", "kind", "reasons"), DOCUMENTED)
def test_each_documented_condition_has_its_status_and_type(http_status: int, kind: str, reasons: list[Reason]) -> None:
    for reason in reasons:
        assert (reason.wire.http_status, reason.wire.type) == (http_status, kind)


def test_no_other_type_is_ever_told() -> None:
    assert {reason.wire.type for reason in Reason} == {kind for _, kind, _ in DOCUMENTED}


def test_a_documented_status_has_one_type_whatever_the_reason() -> None:
    types = {http_status: kind for http_status, kind, _ in DOCUMENTED}
    for wire in (reason.wire for reason in Reason):
        assert wire.type == types.get(wire.http_status, wire.type)


@pytest.mark.parametrize("reason", Reason)
def test_every_error_has_the_one_shape(reason: Reason) -> None:
    body = msgspec.json.decode(error_body(LegatoError(reason, Sentence.verbatim("The message."))))

    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["message"], body["error"]["type"]) == ("The message.", reason.wire.type)

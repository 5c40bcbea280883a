import copy
import pickle
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from legato_protos.client.errors import LegatoError, LimitError, OutOfCreditError, Reason, error_from
from services.chassis import errors
from services.chassis.sentence import Sentence


class Failure(grpc.RpcError):
    """An error as both gRPC clients raise it: a call ended with a status."""

    def __init__(self, code: grpc.StatusCode, status: Status | None = None) -> None:
        self._code = code
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._status.message if self._status else ""

    def initial_metadata(self) -> Any:
        return None

    def trailing_metadata(self) -> Any:
        return (("grpc-status-details-bin", self._status.SerializeToString()),) if self._status else ()


def failure(error: errors.LegatoError) -> Failure:
    return Failure(error.wire.grpc_code, errors.to_status(error))


def test_reasons_are_those_of_the_table_of_errors() -> None:
    own = [Reason.CANCELLED, Reason.DEADLINE_EXCEEDED]
    assert list(Reason) == [*errors.Reason, *own]


def test_every_reason_arrives() -> None:
    for reason in errors.Reason:
        message = Sentence.verbatim("The message.")
        error = error_from(failure(errors.LegatoError(reason, message, param="model", original_request_id="abc")))
        assert (error.reason, error.message, error.param) == (reason.value, "The message.", "model")
        assert (error.original_request_id, error.retry_after_s, error.request_id) == ("abc", None, None), reason


def test_running_out_of_credit_differs_from_other_preconditions() -> None:
    spent = errors.LegatoError(errors.Reason.SPEND_LIMIT_SPENT, Sentence.verbatim("All of it."))
    stepped = errors.LegatoError(errors.Reason.STEP_UP_REQUIRED, Sentence.verbatim("Sign in again."))
    assert isinstance(error_from(failure(spent)), OutOfCreditError)
    assert type(error_from(failure(stepped))) is LegatoError


def test_a_reason_of_a_newer_service_is_kept_as_are_its_class_and_message() -> None:
    limited = errors.LegatoError(errors.Reason.RATE_LIMITED, Sentence.verbatim("Too fast."), retry_after_s=1.5)
    status = errors.to_status(limited)
    status.details[0].Pack(ErrorInfo(reason="MADE_UP_LATER", domain="legato"))
    error = error_from(Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, status))
    assert isinstance(error, LimitError)
    assert (error.reason, error.message, error.retry_after_s) == ("MADE_UP_LATER", "Too fast.", 1.5)
    assert str(error) == "MADE_UP_LATER: Too fast."


def test_a_reason_of_another_domain_is_none_of_ours() -> None:
    status = errors.to_status(errors.LegatoError(errors.Reason.UNAVAILABLE, Sentence.verbatim("Away.")))
    status.details[0].Pack(ErrorInfo(reason="RATE_LIMITED", domain="proxy.example"))
    assert error_from(Failure(grpc.StatusCode.UNAVAILABLE, status)).reason is Reason.UNAVAILABLE


@pytest.mark.parametrize("repeat", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("reason", [Reason.RATE_LIMITED, "MADE_UP_LATER"])
def test_an_error_can_be_copied_and_sent_to_another_process(repeat: Any, reason: str) -> None:
    known = {"param": "model", "retry_after_s": 1.5, "request_id": "abc", "original_request_id": "def"}
    error = LimitError(reason, "Too fast.", **known)  # type: ignore[arg-type]
    error.add_note("In the nightly report.")
    again = repeat(error)
    assert (type(again), str(again), again.__notes__) == (LimitError, str(error), error.__notes__)
    assert (again.reason, again.message) == (reason, "Too fast.")
    assert {name: getattr(again, name) for name in known} == known


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, Reason.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED),
        (grpc.StatusCode.CANCELLED, Reason.CANCELLED),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.ENDPOINT_NOT_OFFERED),
        (grpc.StatusCode.UNKNOWN, Reason.INTERNAL),
    ],
)
def test_a_status_of_grpc_itself_has_a_reason_too(code: grpc.StatusCode, reason: Reason) -> None:
    error = error_from(Failure(code))
    assert (error.reason, str(error)) == (reason, f"{reason}: The call failed.")

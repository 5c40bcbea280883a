from typing import Any

import grpc
import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of


class Failure(grpc.RpcError):
    """An error as both gRPC clients raise it: a call ended with a code."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__("what-was-said")
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def trailing_metadata(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, Reason.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.UNAVAILABLE),
        (grpc.StatusCode.CANCELLED, Reason.UNAVAILABLE),
        (grpc.StatusCode.UNKNOWN, Reason.INTERNAL),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.INTERNAL),
    ],
)
def test_a_failure_without_a_reason_is_named_by_its_code(code: grpc.StatusCode, reason: Reason) -> None:
    with pytest.raises(LegatoError) as failed, errors_of("Metering"):
        raise Failure(code)

    assert failed.value.reason is reason
    assert "what-was-said" not in failed.value.message


def test_what_is_unavailable_is_named() -> None:
    with pytest.raises(LegatoError, match="Metering"), errors_of("Metering"):
        raise Failure(grpc.StatusCode.UNAVAILABLE)

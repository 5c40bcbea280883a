import grpc
import pytest
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from services.chassis import errors
from services.chassis.errors import LegatoError, Reason, from_status, to_status
from services.chassis.sentence import Sentence


def test_every_reason_travels_by_its_name() -> None:
    assert all(Reason(reason.name) is reason for reason in Reason)


def test_every_row_is_an_error_on_both_wires() -> None:
    for wire in (reason.wire for reason in Reason):
        assert wire.grpc_code is not grpc.StatusCode.OK
        assert 400 <= wire.http_status < 600


def test_an_error_arrives_as_it_was_raised() -> None:
    for reason in Reason:
        raised = LegatoError(
            reason,
            Sentence.verbatim("The message."),
            param="messages",
            retry_after_s=2.5,
            original_request_id="a1",
            figures={"limit": 3},
        )

        arrived = from_status(Status.FromString(to_status(raised).SerializeToString()))

        assert (arrived.reason, arrived.message) == (reason, "The message.")
        assert (arrived.param, arrived.retry_after_s) == ("messages", 2.5), reason
        assert (arrived.original_request_id, arrived.figures) == ("a1", {"limit": 3}), reason


def test_the_sentence_of_an_error_arrives_with_its_id_and_figures() -> None:
    raised = LegatoError(Reason.REQUEST_INVALID, Sentence("note_length", most=4000), figures={"limit": 3})

    status = to_status(raised)
    arrived = from_status(status).sentence

    assert (arrived.id, arrived.figures) == ("note_length", {"most": "4000"})
    assert str(arrived) == status.message == "A note must have 1 to 4,000 characters."
    # Earlier releases take all of this for numbers.
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert dict(info.metadata) == {"limit": "3"}


def test_the_english_words_of_an_earlier_release_arrive_without_an_id() -> None:
    status = Status(code=3, message="A note must be short.")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="REQUEST_INVALID", domain=errors.DOMAIN))

    arrived = from_status(status).sentence

    assert (arrived.id, str(arrived)) == ("", "A note must be short.")


def test_what_was_not_said_stays_absent() -> None:
    arrived = from_status(to_status(LegatoError(Reason.RATE_LIMITED, Sentence.verbatim("Slow down."))))

    assert (arrived.param, arrived.retry_after_s, arrived.original_request_id) == (None, None, None)


def test_the_status_carries_the_grpc_code_of_its_reason() -> None:
    status = to_status(LegatoError(Reason.CREDITS_EXHAUSTED, Sentence.verbatim("No credit.")))

    assert status.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]


def test_a_reason_that_is_not_known_here_is_internal() -> None:
    status = Status(code=3, message="Quoting a secret.")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain=errors.DOMAIN))

    arrived = from_status(status)

    assert arrived.reason is Reason.INTERNAL
    assert "secret" not in arrived.message


def test_a_reason_of_another_program_is_internal() -> None:
    status = Status(code=3, message="Quoting a secret.")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="RATE_LIMITED", domain="example.com"))

    assert from_status(status).reason is Reason.INTERNAL


def test_a_status_without_details_is_internal() -> None:
    assert from_status(Status(code=2, message="Quoting a secret.")).message == errors.internal_error().message


def test_an_error_that_was_told_knows_neither_its_origin_nor_what_came_before_it() -> None:
    def fail() -> None:
        try:
            raise RuntimeError
        except RuntimeError:
            raise errors.internal_error() from None

    with pytest.raises(LegatoError) as raised:
        fail()
    error, before = raised.value, raised.value.__context__
    assert before is not None
    errors.forget_origin(error)
    assert (error.__traceback__, before.__traceback__) == (None, None)


def test_what_is_unavailable_may_be_tried_again() -> None:
    error = errors.unavailable("Metering")

    assert error.wire.http_status == 503
    assert error.retry_after_s

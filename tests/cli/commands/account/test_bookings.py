import shlex
import signal
from typing import Any

import grpc
import pytest

from cli.commands.account import bookings
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.cli.played import play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())


BALANCE = metering_pb2.Balance(
    account_id="acct_1", balance_nanos=3_750_000_001, held_nanos=250, owed_nanos=4_350_000_000
)


def test_a_grant_carries_an_id_of_its_own() -> None:
    answer = metering_pb2.GrantCreditsResponse(balance=BALANCE)
    ids = set()
    for _ in range(2):
        far_end = play(KNOWN, ("metering", "CreditAdminService.GrantCredits", answer))
        assert far_end.run("credits", "grant", "acct_1", "5.00").exit_code == 0
        assert far_end.requests[1].amount_nanos == 5_000_000_000
        ids.add(far_end.requests[1].operation_id)
    assert len(ids) == 2


BOOKINGS: list[tuple[str, list[str], str, Any]] = [
    (
        "GrantCredits",
        ["grant", "acct_1", "5.00"],
        "operation_id",
        metering_pb2.GrantCreditsResponse(balance=BALANCE),
    ),
    (
        "AdjustCredits",
        ["adjust", "acct_1", "-1.25", "--reason", "charged twice"],
        "operation_id",
        metering_pb2.AdjustCreditsResponse(balance=BALANCE),
    ),
]


@pytest.mark.parametrize(("method", "arguments", "id_field", "answer"), BOOKINGS)
@pytest.mark.parametrize(
    "failure", [grpc.StatusCode.UNAVAILABLE, LegatoError(Reason.INTERNAL, Sentence.verbatim("Something failed."))]
)
def test_booking_without_an_answer_is_not_called_undone_and_the_command_that_is_told_repeats_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    arguments: list[str],
    id_field: str,
    answer: Any,
    failure: grpc.StatusCode | LegatoError,
) -> None:
    monkeypatch.setattr(bookings, "RETRY_FOR_S", 0.0)
    far_end = play(KNOWN, ("metering", f"CreditAdminService.{method}", failure))
    result = far_end.run("credits", *arguments, "--data", "/srv/my legato")
    assert result.exit_code == 1
    assert result.stderr.startswith("legato: It is not known whether ")
    assert result.stderr.count("\n") == 1
    told = shlex.split(result.stderr.split("`")[1])
    assert told[0] == "legato"
    assert told[-2:] == ["--data", "/srv/my legato"]

    repeated = play(KNOWN, ("metering", f"CreditAdminService.{method}", answer))
    assert repeated.run(*told[1:]).exit_code == 0
    assert repeated.requests[1] == far_end.requests[1]
    assert getattr(repeated.requests[1], id_field)


def test_booking_that_is_interrupted_tells_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bookings, "call_service", interrupt)
    result = play(KNOWN).run("credits", "grant", "acct_1", "5.00", "--id", "invoice-17")
    assert "It is not known whether acct_1 was granted 5.00 $" in result.stderr
    assert "`legato credits grant acct_1 5.00 --id invoice-17`" in result.stderr


def test_booking_that_is_told_to_end_tells_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` does so, without a person at a terminal to interrupt it."""

    def end(*_: Any, **__: Any) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "this would end the test"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(bookings, "call_service", end)
    result = play(KNOWN).run("credits", "grant", "acct_1", "5.00", "--id", "invoice-17")
    assert result.exit_code == 1
    assert "It is not known whether acct_1 was granted 5.00 $" in result.stderr
    assert "`legato credits grant acct_1 5.00 --id invoice-17`" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_folder_is_not_told_where_the_same_shell_finds_it_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookings, "RETRY_FOR_S", 0.0)
    monkeypatch.setenv("LEGATO_DATA", "/srv/legato")
    far_end = play(KNOWN, ("metering", "CreditAdminService.GrantCredits", grpc.StatusCode.UNAVAILABLE))
    assert "--data" not in far_end.run("credits", "grant", "acct_1", "5.00").stderr


def test_booking_outlasts_a_metering_that_is_away_for_longer_than_a_moment() -> None:
    away = ("metering", "CreditAdminService.GrantCredits", grpc.StatusCode.UNAVAILABLE)
    answer = metering_pb2.GrantCreditsResponse(balance=BALANCE)
    far_end = play(KNOWN, *[away] * 8, ("metering", "CreditAdminService.GrantCredits", answer))
    assert far_end.run("credits", "grant", "acct_1", "5.00").exit_code == 0
    assert len({request.operation_id for request in far_end.requests[1:]}) == 1


@pytest.mark.parametrize(("method", "arguments", "id_field", "answer"), BOOKINGS)
def test_id_of_a_booking_can_be_given(method: str, arguments: list[str], id_field: str, answer: Any) -> None:
    far_end = play(KNOWN, ("metering", f"CreditAdminService.{method}", answer))
    assert far_end.run("credits", *arguments, "--id", "invoice-17").exit_code == 0
    assert getattr(far_end.requests[1], id_field) == "invoice-17"


def test_empty_id_is_no_wish_for_a_new_one() -> None:
    """A variable may not be set: a new id each time would book twice what was meant to be booked once."""
    refusal = LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("This is not an id."))
    far_end = play(KNOWN, ("metering", "CreditAdminService.GrantCredits", refusal))
    assert far_end.run("credits", "grant", "acct_1", "5.00", "--id", "").stderr == "legato: This is not an id.\n"
    assert far_end.requests[1].operation_id == ""

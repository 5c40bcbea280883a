"""Grants and adjustments of credit. Each has an id that makes it idempotent.

So it can be repeated safely if there was no answer: the error message has the command with the id.
"""

import secrets
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
import grpc

from cli.command import Invocation
from cli.connection import CallRefused, ServiceStubs, call_service
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import Reason
from services.chassis.money import format_usd

RequestT = TypeVar("RequestT", pb.GrantCreditsRequest, pb.AdjustCreditsRequest)
ResponseT = TypeVar("ResponseT", pb.GrantCreditsResponse, pb.AdjustCreditsResponse)

# Longer than metering takes to restart after a crash, on a slow machine too.
RETRY_FOR_S = 10.0

# Errors after which the booking may be in the ledger or not.
_LEAVES_OPEN = (Reason.UNAVAILABLE, Reason.INTERNAL)


class OutcomeUnknown(CallRefused):
    """An unknown outcome: it may be booked or not."""


def grant(services: ServiceStubs, account_id: str, amount_nanos: int, operation_id: str | None = None) -> pb.Balance:
    amount = format_usd(amount_nanos)
    request = pb.GrantCreditsRequest(
        operation_id=f"grant_{secrets.token_hex(16)}" if operation_id is None else operation_id,
        account_id=account_id,
        amount_nanos=amount_nanos,
    )
    again = ["credits", "grant", account_id, amount, "--id", request.operation_id]
    return _book(services.credits.GrantCredits, request, f"{account_id} was granted {amount} $", again)


def adjust(
    services: ServiceStubs, account_id: str, amount_nanos: int, reason: str, operation_id: str | None = None
) -> pb.Balance:
    amount = format_usd(amount_nanos)
    request = pb.AdjustCreditsRequest(
        operation_id=f"adjustment_{secrets.token_hex(16)}" if operation_id is None else operation_id,
        account_id=account_id,
        amount_nanos=amount_nanos,
        reason=reason,
    )
    again = ["credits", "adjust", account_id, amount, "--reason", reason, "--id", request.operation_id]
    return _book(services.credits.AdjustCredits, request, f"{account_id} was adjusted by {amount} $", again)


def _book(
    method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]", request: RequestT, what: str, again: list[str]
) -> pb.Balance:
    try:
        with _ended_as_if_interrupted():
            return call_service(method, request, retry_for_s=RETRY_FOR_S).balance
    except CallRefused as refusal:
        if refusal.reason not in _LEAVES_OPEN:
            raise
        reason = refusal.reason
        why = "there was no answer" if reason is Reason.UNAVAILABLE else "the service failed"
    except KeyboardInterrupt:
        reason, why = Reason.UNAVAILABLE, "it was interrupted"
    repeat = command_line(*again)
    message = f"It is not known whether {what}: {why}. Repeat it with `{repeat}`: under this id it counts once."
    raise OutcomeUnknown(message, reason)


@contextmanager
def _ended_as_if_interrupted() -> Iterator[None]:
    """Handles SIGTERM, as `timeout` sends it, like Ctrl-C, so that the id is printed. `legato up` has its own."""
    is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def command_line(*arguments: str) -> str:
    """Returns a command line for the same data folder."""
    context = click.get_current_context(silent=True)
    given_data = None if context is None else Invocation(context).given_data
    return shlex.join(["legato", *arguments, *(["--data", given_data] if given_data else [])])

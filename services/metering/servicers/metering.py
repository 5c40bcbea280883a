"""Implements metering's RPCs. Those of a chat are also served on the exchange, by the same functions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import asdict

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1 import metering_pb2_grpc
from legato_protos.metering.v1.chat_outcomes_pb2 import ReportFailuresRequest, ReportFailuresResponse
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.methods import UnaryMethod
from services.chassis.exchange.server import ExchangeServer
from services.chassis.rpc.access_check import require_no_key
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Histogram
from services.chassis.telemetry.tracing import Tracer
from services.metering.credit import messages as credit
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, AnswerT, Reserve, Reserved
from services.metering.credit.store.balances import read_balances, read_request
from services.metering.credit.store.spends import list_reached, list_spends
from services.metering.credit.unpaid_prompts import UnpaidPrompts
from services.metering.limits import messages as limits
from services.metering.limits.rates import Limiter, RateAllowance, RateLimits
from services.metering.messages import checked_id, checked_request_id
from services.metering.reports.messages import usage as reports
from services.metering.reports.messages.chat_outcomes import to_failures
from services.metering.reports.store.failures import add_failures
from services.metering.reports.store.usage import read_recent_cost
from services.metering.reports.usage import report_usage
from services.rules.cost import least_hold_nanos

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

SERVICE = pb.DESCRIPTOR.services_by_name["MeteringService"].full_name


def _rpc(
    method: Callable[["MeteringServicer", RequestT], Awaitable[ResponseT]],
) -> Any:
    """Serves a method of the exchange as an RPC, too."""

    async def serve(servicer: "MeteringServicer", request: RequestT, context: Context) -> ResponseT:
        return await method(servicer, request)

    return serve


class MeteringServicer(metering_pb2_grpc.MeteringServiceServicer):
    def __init__(
        self,
        database: Database,
        writer: Writer,
        limiter: Limiter,
        default_limits: RateLimits,
        log: Log,
        tracer: Tracer | None = None,
        unpaid_prompts: UnpaidPrompts | None = None,
    ) -> None:
        """Serves the RPCs; without `unpaid_prompts` undelivered requests are never charged."""
        self._database = database
        self._writer = writer
        self._limiter = limiter
        self._default_limits = default_limits
        self._unpaid_prompts = unpaid_prompts
        # No administrative methods here.
        self._exchange = ExchangeServer(
            SERVICE,
            {
                "Admit": UnaryMethod(pb.AdmitRequest, self.admit),
                "Correct": UnaryMethod(pb.CorrectRequest, self.correct),
                "Reserve": UnaryMethod(pb.ReserveRequest, self.reserve),
                "Extend": UnaryMethod(pb.ExtendRequest, self.extend),
                "Settle": UnaryMethod(pb.SettleRequest, self.settle),
                "Void": UnaryMethod(pb.VoidRequest, self.void),
                "Checkpoint": UnaryMethod(pb.CheckpointRequest, self.checkpoint),
                "ReportFailures": UnaryMethod(ReportFailuresRequest, self.report_failures),
            },
            pb.ExchangeResponse,
            log,
            tracer,
        )

    @property
    def message_items(self) -> Histogram:
        return self._exchange.message_items

    async def drain(self, delay_s: float = 0.0) -> None:
        """Requests every edge to use other replicas, then waits until no call of theirs runs. Callers without an
        exchange may call until the delay is over."""
        await self._exchange.drain(delay_s)
        await self._exchange.close()

    # Futures, not coroutines, here and below: on the exchange an operation needs no separate task.
    def admit(self, request: pb.AdmitRequest) -> "asyncio.Future[pb.AdmitResponse]":
        return self._limiter.charge(limits.to_admission(request, self._default_limits), limits.from_allowance)

    def correct(self, request: pb.CorrectRequest) -> "asyncio.Future[pb.CorrectResponse]":
        charge = limits.to_correction(request, self._default_limits)
        return self._limiter.charge(charge, lambda _: pb.CorrectResponse())

    def reserve(self, request: pb.ReserveRequest) -> Awaitable[pb.ReserveResponse]:
        operation = credit.to_reserve(request, self._default_limits.concurrent_requests)
        if not request.HasField("admission"):
            return self._writer.submit(operation, partial(self._to_response, request))
        admission = limits.to_admission(request.admission, self._default_limits)
        charged = self._limiter.charge(admission, _as_it_is)
        if not charged.done():
            return self._reserve_when_admitted(request, operation, charged)
        return self._reserve_admitted(request, operation, charged.result())

    async def _reserve_when_admitted(
        self, request: pb.ReserveRequest, operation: Reserve, charged: "asyncio.Future[RateAllowance]"
    ) -> pb.ReserveResponse:
        return await self._reserve_admitted(request, operation, await charged)

    def _reserve_admitted(
        self, request: pb.ReserveRequest, operation: Reserve, allowance: RateAllowance
    ) -> "asyncio.Future[pb.ReserveResponse]":
        return self._writer.submit(
            operation,
            partial(self._to_response, request, allowance=allowance),
            partial(_refusal_of_admitted, allowance=allowance),
        )

    def extend(self, request: pb.ExtendRequest) -> "asyncio.Future[pb.ExtendResponse]":
        return self._writer.submit(credit.to_extend(request), credit.from_extended)

    def settle(self, request: pb.SettleRequest) -> "asyncio.Future[pb.SettleResponse]":
        return self._writer.submit(credit.to_settle(request), credit.from_settled)

    def void(self, request: pb.VoidRequest) -> "asyncio.Future[pb.VoidResponse]":
        operation = credit.to_void(request, charges_prompt=self._is_due(request))
        return self._writer.submit(operation, lambda _: pb.VoidResponse())

    def _to_response(
        self, request: pb.ReserveRequest, answer: Reserved, allowance: RateAllowance | None = None
    ) -> pb.ReserveResponse:
        response = credit.from_reserved(answer)
        if allowance is not None:
            response.rate.CopyFrom(limits.from_allowance(allowance))
        unpaid = self._unpaid_prompts
        response.has_habit_of_leaving = unpaid is not None and unpaid.is_over_limit(request.account_id)
        return response

    def _is_due(self, request: pb.VoidRequest) -> bool:
        """Returns whether an undelivered prompt is charged, and notes unpaid ones."""
        unpaid, is_accepted = self._unpaid_prompts, request.accepted_prompt_tokens > 0
        if unpaid is None or request.unpaid_prompt_tokens <= 0:
            return False
        if is_accepted and unpaid.is_over_limit(request.account_id):
            return True
        unpaid.record(request.account_id, request.request_id, request.unpaid_prompt_tokens)
        return False

    async def checkpoint(self, request: pb.CheckpointRequest) -> pb.CheckpointResponse:
        """Responds when all are written. A delivery that names another account's request is skipped."""
        checkpoints = credit.to_checkpoints(request)
        failure: LegatoError | None = None
        # One after the other: they share a batch, so that at most the first is waited for.
        for writing in [self._writer.submit(checkpoint, _as_it_is) for checkpoint in checkpoints]:
            try:
                await writing
            except LegatoError as error:
                if error.reason is not Reason.REQUEST_INVALID:
                    failure = failure or error
        if failure is not None:
            raise failure
        return pb.CheckpointResponse()

    async def report_failures(self, request: ReportFailuresRequest) -> ReportFailuresResponse:
        await self._database.write(add_failures, to_failures(request))
        return ReportFailuresResponse()

    Admit, Correct, Reserve, Extend = _rpc(admit), _rpc(correct), _rpc(reserve), _rpc(extend)
    Settle, Void, Checkpoint = _rpc(settle), _rpc(void), _rpc(checkpoint)
    ReportFailures = _rpc(report_failures)

    def Exchange(
        self, request_iterator: AsyncIterator[pb.ExchangeRequest], context: Context
    ) -> AsyncIterator[pb.ExchangeResponse]:
        return self._exchange.serve(request_iterator)

    async def ListUsage(self, request: pb.ListUsageRequest, context: Context) -> pb.ListUsageResponse:
        query = reports.to_usage_query(request)
        rows, other_keys = await self._database.read(report_usage, query)
        return pb.ListUsageResponse(rows=map(reports.from_usage_row, rows), other_keys=other_keys)

    async def GetBalance(self, request: pb.GetBalanceRequest, context: Context) -> pb.GetBalanceResponse:
        account_id = checked_id(request.account_id, "account_id")
        require_no_key(request.key_id)
        [account] = await self._database.read(read_balances, [account_id])
        response = pb.GetBalanceResponse(
            balance=credit.from_account(account),
            least_input_nanos_per_million=self._writer.prices.least_input_nanos_per_million,
        )
        if account.has_spend_limits and request.key_id:
            key_ids = [checked_id(request.key_id, "key_id")]
            response.spends.extend(map(limits.from_spend, await self._database.read(list_spends, account_id, key_ids)))
        elif account.has_spend_limits and request.tells_outlook:
            least_nanos = least_hold_nanos(response.least_input_nanos_per_million)
            response.spends.extend(
                map(limits.from_spend, await self._database.read(list_reached, account_id, least_nanos))
            )
        if request.tells_outlook:
            own_nanos, rules = account.low_balance_nanos, self._writer.notice_rules
            response.outlook.low_balance_nanos = rules.low_balance_nanos if own_nanos is None else own_nanos
            response.outlook.spent_7_days_nanos = await self._database.read(read_recent_cost, account_id, 7 * DAY_US)
        return response

    async def GetRequest(self, request: pb.GetRequestRequest, context: Context) -> pb.GetRequestResponse:
        account_id, request_id = checked_id(request.account_id, "account_id"), checked_request_id(request.request_id)
        hold = await self._database.read(read_request, account_id, request_id)
        if hold is None:
            raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="request"))
        return credit.from_hold(hold)


def _as_it_is(answer: AnswerT) -> AnswerT:
    return answer


def _refusal_of_admitted(error: LegatoError, allowance: RateAllowance) -> LegatoError:
    """Returns a refusal that also tells what is left of the rate limits. A new one: several may share the error."""
    return LegatoError(
        error.reason,
        error.sentence,
        param=error.param,
        retry_after_s=error.retry_after_s,
        original_request_id=error.original_request_id,
        figures={**error.figures, **asdict(allowance)},
    )

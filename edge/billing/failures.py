"""Counts the chats that failed, and reports them to metering every few seconds.

They are statistics: what was counted since the last report is lost with the process, and a report whose answer was lost
may count twice.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from edge.backends.auth import Principal
from edge.backends.exchanges import MeteringReplica
from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

EVERY_S: Final = 5.0
TIMEOUT_S: Final = 10.0
HOUR_S: Final = 3600
# Further ones are not counted until the next report: metering is away, and very many keys fail in many ways.
COUNTS_MOST: Final = 10_000

# What is no error to a client, but a failure to the account's owner.
CLIENT_GONE: Final = "CLIENT_GONE"
CREDIT_SPENT: Final = "CREDIT_SPENT"


class FailureKey(NamedTuple):
    account_id: str
    key_id: str
    class_id: str
    reason: str
    # The answer had begun.
    is_cut: bool
    hour_s: int


class FailureCounts:
    def __init__(self, replicas: Replicas[MeteringReplica], clock: Clock, log: Log) -> None:
        self._replicas = replicas
        self._clock = clock
        self._log = log
        self.counts: Counter[FailureKey] = Counter()
        self._passed_over = 0

    def count(self, principal: Principal, class_id: str, reason: str, *, is_cut: bool = False) -> None:
        """Counts one chat; its class is empty if it is not known yet."""
        now_s = int(self._clock.now().timestamp())
        failure = FailureKey(
            principal.account_id, principal.key_id, class_id, str(reason), is_cut, now_s - now_s % HOUR_S
        )
        if failure in self.counts or len(self.counts) < COUNTS_MOST:
            self.counts[failure] += 1
        else:
            self._passed_over += 1

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.report()
            except Exception as error:
                self._log.failure("failures.lost", error)

    async def report(self) -> None:
        """Reports what was counted. What cannot be reported now is counted on."""
        if self._passed_over:
            self._log.warning("failures.lost", chats=self._passed_over)
            self._passed_over = 0
        counts, self.counts = self.counts, Counter()
        by_replica: defaultdict[MeteringReplica, Counter[FailureKey]] = defaultdict(Counter)
        for failure, requests in counts.items():
            try:
                by_replica[self._replicas.for_account(failure.account_id)][failure] = requests
            except LegatoError:
                self.counts[failure] += requests
        for replica, its_counts in by_replica.items():
            try:
                await replica.call("ReportFailures", _report(its_counts), pb.ReportFailuresResponse, TIMEOUT_S)
            except LegatoError as error:
                if error.reason is Reason.UNAVAILABLE:
                    self.counts.update(its_counts)
                else:
                    # Metering is of an earlier version.
                    self._log.debug("failures.lost", reason=error.reason)


def _report(counts: Counter[FailureKey]) -> pb.ReportFailuresRequest:
    request = pb.ReportFailuresRequest()
    for failure, requests in counts.items():
        request.failures.add(
            account_id=failure.account_id,
            key_id=failure.key_id,
            class_id=failure.class_id,
            reason=failure.reason,
            is_cut=failure.is_cut,
            time=Timestamp(seconds=failure.hour_s),
            requests=requests,
        )
    return request

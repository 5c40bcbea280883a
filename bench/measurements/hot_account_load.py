"""The load on one account, in a separate process: pairs of Reserve and Settle, sent over an exchange as the edge
does."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench.processors import Spent, Watch
from bench.report import percentile
from edge.backends.exchanges import MeteringReplica
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.rpc.channel import open_channel
from services.chassis.telemetry.log import Log

ACCOUNT: Final = "acct_bench"
GRANT_NANOS: Final = 10**15
# Longer than any call takes, on a shared machine too.
TIMEOUT_S: Final = 60.0


class Order(msgspec.Struct, frozen=True):
    address: str
    in_flight: int
    warm_up_s: float
    seconds: float
    # The processes whose CPU time is measured, by name.
    groups: dict[str, int]


class Outcome(msgspec.Struct, frozen=True):
    # Half of the operations: in a queue, reserves are done before the first settlement.
    pairs: float
    pairs_per_s: float
    reserve_p50_ms: float
    reserve_p99_ms: float
    spent: Spent
    # Of the whole run, from the first operation to the last.
    all_operations: int
    charged_nanos: int
    balance_nanos: int
    held_nanos: int
    violations: list[str]


class _Load:
    def __init__(self, replica: MeteringReplica) -> None:
        self._replica = replica
        self.is_over = False
        self.operations = 0
        self.charged_nanos = 0
        self.reserve_s: list[float] = []

    async def reserve_and_settle(self) -> None:
        """Sends requests sequentially."""
        while not self.is_over:
            request_id = os.urandom(16).hex()
            asked_at_s = time.perf_counter()
            reserve = pb.ReserveRequest(
                request_id=request_id,
                account_id=ACCOUNT,
                key_id="key_bench",
                class_id="forte",
                prompt_tokens=100,
                output_tokens=4096,
            )
            await self._replica.call("Reserve", reserve, pb.ReserveResponse, TIMEOUT_S)
            self.reserve_s.append(time.perf_counter() - asked_at_s)
            self.operations += 1
            settle = pb.SettleRequest(
                request_id=request_id,
                account_id=ACCOUNT,
                usage=Usage(prompt_tokens=100, completion_tokens=50),
                basis=pb.BASIS_PROVIDER,
                end=pb.END_COMPLETE,
            )
            settled: pb.SettleResponse = await self._replica.call("Settle", settle, pb.SettleResponse, TIMEOUT_S)
            self.charged_nanos += settled.charged_nanos
            self.operations += 1


async def put_load(order: Order) -> Outcome:
    replica = MeteringReplica(order.address, Log("bench"))
    channel = open_channel(order.address)
    credits = CreditAdminServiceStub(channel)
    grant = pb.GrantCreditsRequest(operation_id="bench", account_id=ACCOUNT, amount_nanos=GRANT_NANOS)
    await credits.GrantCredits(grant, timeout=TIMEOUT_S, wait_for_ready=True)
    while not replica.usable:
        await asyncio.sleep(0.01)
    load = _Load(replica)
    async with asyncio.TaskGroup() as workers:
        for _ in range(order.in_flight):
            workers.create_task(load.reserve_and_settle())
        await asyncio.sleep(order.warm_up_s)
        load.reserve_s.clear()
        operations_before, began_at_s = load.operations, time.perf_counter()
        watch = Watch(order.groups | {"load": os.getpid()}, family=os.getppid())
        await asyncio.sleep(order.seconds)
        while not load.reserve_s:
            await asyncio.sleep(0.01)
        spent = watch.spent()
        pairs, took_s = (load.operations - operations_before) / 2, time.perf_counter() - began_at_s
        waits_ms = [1000 * wait_s for wait_s in load.reserve_s]
        load.is_over = True
    response = await credits.ListBalances(pb.ListBalancesRequest(account_ids=[ACCOUNT]), timeout=TIMEOUT_S)
    audit = await credits.Audit(pb.AuditRequest(), timeout=TIMEOUT_S)
    await replica.close()
    await channel.close()
    return Outcome(
        pairs=pairs,
        pairs_per_s=pairs / took_s,
        reserve_p50_ms=percentile(waits_ms, 50),
        reserve_p99_ms=percentile(waits_ms, 99),
        spent=spent,
        all_operations=load.operations,
        charged_nanos=load.charged_nanos,
        balance_nanos=response.balances[0].balance_nanos,
        held_nanos=response.balances[0].held_nanos,
        violations=list(audit.violations),
    )


if __name__ == "__main__":
    order = msgspec.json.decode(sys.argv[1], type=Order)
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(uvloop.run(put_load(order))))

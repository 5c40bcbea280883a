"""Seeded mistakes that no kill brings to light, since what they need is a late message, or metering of 0.1.0.

Each story is told step by step, against a real metering, and says what went wrong, if anything did.
"""

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from edge.billing.hold import ChatHold
from edge.billing.journal import Journal, SlotPassedOn
from edge.billing.metering import Metering
from edge.billing.settlements import ANSWER_TIMEOUT_S
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.exchange.client import ExchangeBroken
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.credit.ledger.spend import SpendLimits
from tests.campaigns.faults.bugs import BUGS, MISFORTUNES, UNCOUNTED
from tests.edge.metering_harness import ANN, MeteringHarness, cost

DELIVERED: Final = Usage(prompt_tokens=100, completion_tokens=10)


class Scenario(Protocol):
    async def __call__(self, *, with_bug: bool) -> str:
        """Returns what went wrong, else empty."""
        ...


class _Between:
    """Stands between an edge and metering, and does with its questions what a bad network does."""

    def __init__(self, harness: MeteringHarness) -> None:
        self._harness = harness
        self.kept: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    def for_account(self, account_id: str) -> "_Between":
        return self

    def home_of(self, account_id: str) -> str:
        return ""

    def call(self, method: str, *question: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self.answer(method, *question))

    async def answer(self, method: str, *question: Any) -> Any:
        if method == "Reserve" and not self.kept:
            # Under way for long.
            self.kept.append((method, *question))
            raise ExchangeBroken("Metering")
        return await self.pass_on(method, *question)

    async def pass_on(self, *question: Any) -> Any:
        return await self._harness.replicas.for_account(ANN.account_id).call(*question)


class _AnswersAgain(_Between):
    """Gives the answer to the first Extend to the second one too."""

    async def answer(self, method: str, *question: Any) -> Any:
        if method not in self.answers:
            self.answers[method] = await self.pass_on(method, *question)
        return self.answers[method]


async def _late_write(*, with_bug: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edge.billing.journal"
        journal = Journal(path, 4)
        first = journal.claim(f"{1:032x}", "acct_ann")
        first.free()
        second = journal.claim(f"{2:032x}", "acct_ann")
        with _made(with_bug, "slot reuse, handle without generation"), suppress(SlotPassedOn):
            first.count(100, 10)
        journal.close()
        reopened = Journal(path, 4)
        found = [(slot.request_id, slot.completion_tokens) for slot in reopened.taken.values()]
        reopened.close()
        return "" if found == [(second.request_id, 0)] else f"doubled: the next owner's slot says {found}"


async def _forgotten_refusal(*, with_bug: bool) -> str:
    async with _metering() as harness:
        between = _Between(harness)
        hold = ChatHold(Metering(between, SystemClock(), _log()), harness.journal, ANN, f"{1:032x}", "forte")  # type: ignore[arg-type]
        with _made(with_bug, "refused reserve forgotten although sent twice"):
            with suppress(LegatoError):
                await hold.reserve(100, 10)
            # What a chat does that was refused.
            hold.void(pb.END_REFUSED)
            await harness.metering.settled()
            await asyncio.sleep(0.1)
        await harness.give(10**9)
        with suppress(LegatoError):
            await between.pass_on(*between.kept[0])
        _, held_nanos = await harness.balance()
        return f"stuck: {held_nanos} nanos are held, and no slot says so" if held_nanos else ""


async def _unmatched_reply(*, with_bug: bool) -> str:
    async with _metering() as harness:
        await harness.give(cost(100, 5_000))
        metering = Metering(_AnswersAgain(harness), SystemClock(), _log())  # type: ignore[arg-type]
        hold = ChatHold(metering, harness.journal, ANN, f"{1:032x}", "forte")
        await hold.reserve(100, 10)
        with _made(with_bug, "extend reply not matched"):
            await hold.grow(100, 4_000, DELIVERED)
            await hold.grow(100, 6_000, DELIVERED)
        _, held_nanos = await harness.balance()
        may_relay = hold.covered_output_tokens(100) >= 6_000
        return f"lost: 6000 tokens may go out on a hold of {held_nanos} nanos" if may_relay else ""


async def _uncounted_hold(*, with_bug: bool) -> str:
    async with _metering() as harness:
        await harness.give(10**9)
        await harness.limit(SpendLimits(day_nanos=10**9))
        hold = harness.hold()
        with MISFORTUNES[UNCOUNTED].applied():
            await hold.reserve(100, 10)
        with _made(with_bug, "counter that prevents a settlement"):
            hold.settle(DELIVERED, pb.BASIS_PROVIDER, pb.END_COMPLETE)
            _, held_nanos = await harness.balance()
        if held_nanos:
            # As an edge does that starts later, so that the books are right in the end.
            request = pb.SettleRequest(
                request_id=f"{1:032x}",
                account_id=ANN.account_id,
                usage=DELIVERED,
                basis=pb.BASIS_PROVIDER,
                end=pb.END_COMPLETE,
            )
            await _Between(harness).pass_on("Settle", request, pb.SettleResponse, ANSWER_TIMEOUT_S)
            return "stuck: the chat stays uncharged, and its credit held"
        return ""


def _made(with_bug: bool, name: str) -> Any:
    return BUGS[name].applied() if with_bug else nullcontext()


def _log() -> Log:
    return Log("faults", io.StringIO())


@asynccontextmanager
async def _metering() -> AsyncIterator[MeteringHarness]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        harness = MeteringHarness(Path(folder), Path(folder), _log())
        await harness.start()
        async with asyncio.timeout(30):
            while not _is_connected(harness):
                await asyncio.sleep(0.01)
        try:
            yield harness
        finally:
            await harness.close()


def _is_connected(harness: MeteringHarness) -> bool:
    try:
        harness.replicas.for_account(ANN.account_id)
    except LegatoError:
        return False
    return True


SCENARIOS: Final[dict[str, Scenario]] = {
    "counter that prevents a settlement": _uncounted_hold,
    "slot reuse, handle without generation": _late_write,
    "refused reserve forgotten although sent twice": _forgotten_refusal,
    "extend reply not matched": _unmatched_reply,
}

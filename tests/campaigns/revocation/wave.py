"""One wave: some keys are revoked, or their accounts suspended, while something is wrong between edges and auths."""

import asyncio
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from legato_protos.auth.v1 import auth_pb2 as auth_pb
from tests.campaigns.faults.books.ledger import first_request_id
from tests.campaigns.revocation import faults
from tests.campaigns.revocation.client import ACCEPTED, REFUSED, Prober, Stream
from tests.campaigns.revocation.faults import AUTH_KILLED
from tests.campaigns.revocation.harness import AUTHS, EDGES, RevocationHarness
from tests.campaigns.revocation.tally import BOUND_S, Findings, refusal_of

# What should come true does so much sooner; what does not by then never will.
WAIT_TIMEOUT_S = 30.0
SUSPENDED_SHARE = 0.2
STREAMED_SHARE = 0.3
KILLED_SHARE = 0.2
# Faults begin up to so long before or after the revocations do.
FAULT_OFFSET_S = 0.5
SPREAD_S = 0.3


@dataclass
class Victim:
    made: auth_pb.CreateKeyResponse
    is_suspended: bool
    probers: dict[str, Prober] = field(default_factory=dict)
    # On one of the edges, for some.
    stream: Stream | None = None
    streams_at: str = ""
    began_at_s: float = 0.0
    returned_at_s: float = 0.0

    @property
    def key(self) -> auth_pb.Key:
        return self.made.key


class Wave:
    def __init__(
        self, harness: RevocationHarness, good: auth_pb.CreateKeyResponse, dice: random.Random, findings: Findings
    ) -> None:
        """`good` is a key that stays good."""
        self._harness = harness
        self._good = good
        self._dice = dice
        self._findings = findings

    async def play(self, revocations: int) -> None:
        first_id = first_request_id()
        victims = [await self._new_victim() for _ in range(revocations)]
        goods = {edge: Prober(self._harness.address(edge), self._good.api_key) for edge in EDGES}
        probers = [prober for victim in victims for prober in victim.probers.values()]
        streams: list[tuple[asyncio.Task[None], Victim]] = []
        try:
            await self._come_true("accepted", [prober.got(ACCEPTED) for prober in (*probers, *goods.values())])
            streams += [(asyncio.create_task(victim.stream.run()), victim) for victim in victims if victim.stream]
            await self._come_true("streaming", [victim.stream.has_begun() for _, victim in streams if victim.stream])
            fault_by_edge = self._choose_faults()
            await asyncio.gather(self._break(fault_by_edge), *(self._revoke(victim) for victim in victims))
            await asyncio.sleep(BOUND_S + 0.1)
            self._heal()
            await self._come_true("refused", [prober.got(*REFUSED) for prober in probers])
            await self._come_true("ended", [asyncio.shield(running) for running, _ in streams])
            self._judge(victims, goods, fault_by_edge)
            await self._resume([victim for victim in victims if victim.is_suspended])
        finally:
            self._heal()
            for prober in (*probers, *goods.values()):
                await prober.stop()
            for running, _ in streams:
                running.cancel()
            await asyncio.gather(*(running for running, _ in streams), return_exceptions=True)
        await self._check_books(first_id, [victim for _, victim in streams])

    async def _new_victim(self) -> Victim:
        made = await self._harness.new_key()
        victim = Victim(made, is_suspended=self._dice.random() < SUSPENDED_SHARE)
        victim.probers = {edge: Prober(self._harness.address(edge), made.api_key) for edge in EDGES}
        if self._dice.random() < STREAMED_SHARE:
            victim.streams_at = self._dice.choice(EDGES)
            victim.stream = Stream(self._harness.address(victim.streams_at), made.api_key)
        return victim

    def _choose_faults(self) -> dict[str, str]:
        if self._dice.random() < KILLED_SHARE:
            return dict.fromkeys(EDGES, AUTH_KILLED)
        return {edge: self._dice.choice(faults.OF_EDGES) for edge in EDGES}

    async def _break(self, fault_by_edge: dict[str, str]) -> None:
        async def break_lines(edge: str, fault: str) -> None:
            await asyncio.sleep(self._dice.uniform(0, 2 * FAULT_OFFSET_S))
            faults.begin(fault, [self._harness.proxies[edge, auth] for auth in AUTHS], self._dice)

        if AUTH_KILLED in fault_by_edge.values():
            await asyncio.sleep(self._dice.uniform(0, 2 * FAULT_OFFSET_S))
            self._harness.kill(self._dice.choice(AUTHS))
        else:
            await asyncio.gather(*(break_lines(edge, fault) for edge, fault in fault_by_edge.items()))

    def _heal(self) -> None:
        for line in self._harness.proxies.values():
            line.heal()

    async def _revoke(self, victim: Victim) -> None:
        await asyncio.sleep(FAULT_OFFSET_S + self._dice.uniform(0, SPREAD_S))
        victim.began_at_s = time.monotonic()
        await (self._harness.suspend if victim.is_suspended else self._harness.revoke)(victim.key)
        victim.returned_at_s = time.monotonic()

    async def _resume(self, victims: list[Victim]) -> None:
        await asyncio.gather(*(self._harness.resume(victim.key) for victim in victims))
        # As the call has returned, the very next request is accepted; one that is under way may still be refused.
        await self._come_true("resumed", [prober.got(ACCEPTED) for one in victims for prober in one.probers.values()])

    def _judge(self, victims: list[Victim], goods: dict[str, Prober], fault_by_edge: dict[str, str]) -> None:
        for victim in victims:
            self._findings.suspensions += victim.is_suspended
            self._findings.revocations += not victim.is_suspended
            for edge, prober in victim.probers.items():
                refusal = refusal_of(prober.answers, victim.began_at_s, victim.returned_at_s)
                self._findings.add(fault_by_edge[edge], victim.key.key_id, edge, refusal)
            if victim.stream is not None and victim.stream.ended_at_s is not None:
                if not victim.stream.was_refused:
                    self._findings.violations.append(f"a stream at {victim.streams_at} did not end with its error")
                lasted_s = victim.stream.ended_at_s - victim.began_at_s
                self._findings.tallies[fault_by_edge[victim.streams_at]].streams_s.append(lasted_s)
        for edge, prober in goods.items():
            self._findings.tallies[fault_by_edge[edge]].good.update(answer.status for answer in prober.answers)
            if any(answer.status in REFUSED for answer in prober.answers):
                self._findings.violations.append(f"{edge} took a good key for a bad one ({fault_by_edge[edge]})")

    async def _check_books(self, first_id: str, victims: list[Victim]) -> None:
        """Every stream was charged for what its client got, and is said to have ended with its key."""

        async def settled() -> None:
            while self._harness.ledger.live_holds():
                await asyncio.sleep(0.1)

        await self._come_true("settled", [settled()])
        books = self._harness.ledger.accounts_since(first_id, [victim.key.account_id for victim in victims])
        for victim in victims:
            charged = [(hold.completion_tokens, hold.end) for hold in books[victim.key.account_id].holds]
            delivered = victim.stream.pieces if victim.stream is not None else 0
            if charged != [(delivered, "key_refused")]:
                self._findings.violations.append(f"a stream got {delivered} tokens, and the books say {charged}")

    async def _come_true(self, what: str, awaited: "list[Awaitable[None]]") -> None:
        """All of them in time."""
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                await asyncio.gather(*awaited)
        except TimeoutError:
            raise AssertionError(f"not {what} within {WAIT_TIMEOUT_S:.0f} s") from None

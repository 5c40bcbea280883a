"""Ends processes one after the other, and starts others in their places, while clients ask on. Half-way through all
certificates are replaced. No client should notice."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.commands.account.accounts import balance_of, create_account
from cli.commands.account.keys import create_key
from cli.connection import ServiceStubs, call_service
from legato_protos.metering.v1.metering_pb2 import AuditRequest
from tests.campaigns.drain.clients import WORD, Chat, Clients
from tests.campaigns.drain.harness import NAMES, DrainHarness
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.support.upstreams.openai import Reply, Upstream

CREDIT_NANOS = 1_000 * 10**9
# What a chat of class mezzo costs, with the upstream's usual count of tokens.
CHAT_NANOS = 11 * 100 + 7 * 210

# Longer than an edge takes to find a process that was started, also on a busy machine.
FOUND_S = 4.0
SETTLED_WITHIN_S = 30.0

COLUMNS = ("process", "running", "finished", "broken", "begun meanwhile", "broken", "exit code", "s to exit")


@dataclass(frozen=True)
class Pace:
    """Paces answers."""

    words: int = 12
    word_every_s: float = 0.25


@dataclass(frozen=True)
class Step:
    """One of two that serve together is restarted; or one that serves alone ends when the other has started."""

    process: str
    replaced_by: str = ""

    @property
    def service(self) -> str:
        return self.process.partition("-")[0]

    def __str__(self) -> str:
        return f"{self.process} -> {self.replaced_by}" if self.replaced_by else self.process


@dataclass(frozen=True)
class Plan:
    # Those that run at first.
    names: Sequence[str]
    steps: Sequence[Step]
    # Edges hear at once that a service leaves. They need time only where they must find another first.
    service_drain_delay_s: float = 0.0


ALONE = [name for name in NAMES if name.endswith("-1")]
RESTARTS = Plan(NAMES, [Step(name) for name in NAMES])
REPLACEMENTS = Plan(ALONE, [Step(name, name.replace("-1", "-2")) for name in ALONE], FOUND_S)


@dataclass(frozen=True)
class Restart:
    step: Step
    # Chats that ran when the process was asked to end, wherever they ran, and those that came until it had ended.
    running: Sequence[Chat]
    begun: Sequence[Chat]
    exit_code: int
    took_s: float

    def row(self) -> list[str]:
        return [
            str(self.step),
            str(len(self.running)),
            str(sum(not chat.flaw for chat in self.running)),
            str(sum(bool(chat.flaw) for chat in self.running)),
            str(len(self.begun)),
            str(sum(bool(chat.flaw) for chat in self.begun)),
            str(self.exit_code),
            f"{self.took_s:.1f}",
        ]


@dataclass(frozen=True)
class Findings:
    restarts: Sequence[Restart]
    chats: int
    flaws: Counter[str]
    # Of requests that were not chats.
    statuses: Counter[str]
    charged_nanos: int
    held_nanos: int
    audit: Sequence[str]
    complaints: Sequence[str]

    @property
    def violations(self) -> list[str]:
        found = [f"{count} chats: {flaw}" for flaw, count in self.flaws.items()]
        found += [f"{count} reads: {status}" for status, count in self.statuses.items() if status != "200"]
        found += [f"{end.step} ended with {end.exit_code}" for end in self.restarts if end.exit_code]
        whole_chats = self.chats - self.flaws.total()
        if not self.flaws and self.charged_nanos != whole_chats * CHAT_NANOS:
            found.append(f"{self.charged_nanos} charged for {whole_chats} chats of {CHAT_NANOS}")
        if self.held_nanos:
            found.append(f"{self.held_nanos} are still held")
        return [*found, *self.audit, *self.complaints]

    def table(self) -> str:
        rows = [COLUMNS, *(restart.row() for restart in self.restarts)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        reads = ", ".join(f"{count} x {status}" for status, count in sorted(self.statuses.items()))
        lines.append(f"\n{self.chats} chats, {self.flaws.total()} broken; other requests: {reads or 'none'}")
        lines.append(f"charged {self.charged_nanos} nano-dollars, held {self.held_nanos}")
        return "\n".join(lines)


async def run(
    forks: Forks,
    database_url: str,
    valkey_url: str,
    clients: int,
    pace: Pace,
    plan: Plan,
    say: Callable[[str], None] = lambda step: None,
) -> Findings:
    reply = Reply(contents=[f"{WORD} "], repeat=pace.words, event_delay_s=pace.word_every_s)
    async with Upstream(reply) as upstream:
        harness = DrainHarness(
            forks, plan.names, plan.service_drain_delay_s, database_url, valkey_url, upstream.base_url
        )
        async with harness.opened():
            return await _run(harness, clients, pace, plan.steps, say)


async def _run(
    harness: DrainHarness,
    count: int,
    pace: Pace,
    steps: Sequence[Step],
    say: Callable[[str], None],
) -> Findings:
    with harness.services() as services:
        account, _ = await asyncio.to_thread(create_account, services, "drain", CREDIT_NANOS)
        made = await asyncio.to_thread(create_key, services, account.account_id, "drain", (), None)
    restarts = []
    async with Clients(harness, made.api_key, count, pace.words) as clients:
        await clients.until_all_run()
        for number, step in enumerate(steps):
            if number == len(steps) // 2:
                say("new certificates")
                harness.replace_certificates()
            if number and step.service == steps[number - 1].service:
                # The other of two should not go before the edges have found the first again.
                await asyncio.sleep(FOUND_S)
            say(str(step))
            restarts.append(await _take(harness, clients, step))
    with harness.services() as services:
        balance = await _settled_balance(services, account.account_id)
        audit = (await asyncio.to_thread(call_service, services.credits.Audit, AuditRequest())).violations
    return Findings(
        restarts=restarts,
        chats=len(clients.chats),
        flaws=Counter(chat.flaw for chat in clients.chats if chat.flaw),
        statuses=clients.statuses,
        charged_nanos=CREDIT_NANOS - balance[0],
        held_nanos=balance[1],
        audit=list(audit),
        complaints=harness.complaints(),
    )


async def _take(harness: DrainHarness, clients: Clients, step: Step) -> Restart:
    if step.replaced_by:
        await harness.start(step.replaced_by)
    running, chats_before = list(clients.running), len(clients.chats)
    began_at_s = time.monotonic()
    exit_code = await harness.end(step.process)
    took_s = time.monotonic() - began_at_s
    begun = clients.chats[chats_before:]
    if not step.replaced_by:
        await harness.start(step.process)
    return Restart(step, running, begun, exit_code, took_s)


async def _settled_balance(services: ServiceStubs, account_id: str) -> tuple[int, int]:
    """Returns balance and held nanos once nothing is held, or late."""
    give_up_at_s = time.monotonic() + SETTLED_WITHIN_S
    while True:
        balance = await asyncio.to_thread(balance_of, services, account_id)
        if not balance.held_nanos or time.monotonic() > give_up_at_s:
            return balance.balance_nanos, balance.held_nanos
        await asyncio.sleep(0.1)

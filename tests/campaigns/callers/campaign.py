"""Programs that call ChatService and are gone at random moments, and what of it is in the ledger."""

import asyncio
import json
import multiprocessing
import random
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, get_args

from services.metering.credit.prices import Price, read_prices
from services.metering.settings import MeteringSettings
from services.router.prompts.prompt import compose_prompt, load_character
from services.rules.usage import Usage
from tests.campaigns.callers.caller import FINISHED, Leaving, Plan, run
from tests.campaigns.faults.books.ledger import Account, LedgerReader, first_request_id
from tests.campaigns.faults.chat import PROVIDER_HIDDEN_TOKENS, PROVIDER_PROMPT_TOKENS, Tokens
from tests.campaigns.faults.client import TAG
from tests.campaigns.faults.harnesses.parts import WORD
from tests.support.rpc_chats import socket_of
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Recorded, Reply, Upstream

AT_ONCE: Final = 16
# Promised for the hold of a caller that is gone.
HELD_S: Final = 5.0
LONGEST_S: Final = 1.0
PLATFORM: Final = "platform"
CREDIT_NANOS: Final = 5 * 10**9
SETTINGS: Final = {"LEGATO_REQUESTS_PER_MINUTE": "1000000", "LEGATO_REQUEST_BURST": "100000"}
# Killed as often as all others together.
LEAVINGS: Final = (*get_args(Leaving), *["killed"] * 4)


class Provider(Upstream):
    """Says a word every some milliseconds, sooner or later, and often never comes to its end; remembers what it was
    asked by the chat's tag."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        # Chats whose callers wait for the end.
        self.awaited: set[str] = set()
        self.asked: dict[str, list[tuple[Recorded, Reply]]] = {}

    def reply_to(self, recorded: Recorded) -> Reply:
        found = TAG.search(recorded.body)
        assert found is not None
        tag = found[0].decode()
        dice, words = self._dice, self._dice.randint(1, 60)
        reply = Reply(
            contents=[WORD],
            repeat=words,
            usage={"prompt_tokens": PROVIDER_PROMPT_TOKENS, "completion_tokens": words + PROVIDER_HIDDEN_TOKENS},
            delay_s=dice.choice((0, 0, dice.uniform(0, LONGEST_S))),
            event_delay_s=dice.choice((0, *[dice.uniform(0, 0.03)] * 3)),
            stall_after=dice.choice((None, dice.randint(1, words))) if tag not in self.awaited else None,
        )
        self.asked.setdefault(tag, []).append((recorded, reply))
        return reply


@dataclass
class Call:
    tag: str
    account_id: str
    plan: Plan
    gone_at_s: float | None = None

    @property
    def book(self) -> bytes:
        return self.plan.book.read_bytes() if self.plan.book.exists() else b""

    @property
    def received_tokens(self) -> int:
        return self.book.count(WORD.encode())

    @property
    def told(self) -> Tokens | None:
        """The usage that the caller was told at the end, if it saw the end."""
        found = re.search(rb"%b (\d+) (\d+)" % FINISHED, self.book)
        return Tokens(int(found[1]), int(found[2])) if found else None


@dataclass
class Findings:
    calls: int = 0
    finished: int = 0
    charged: int = 0
    violations: list[str] = field(default_factory=list)


async def run_campaign(
    callers: int, dice: random.Random, advance: Callable[[], None] = lambda: None, held_s: float = HELD_S
) -> Findings:
    """`held_s` is how long a hold may stay after its caller is gone."""
    provider = Provider(dice)
    with (
        tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder,
        UpstreamThread(provider) as upstream,
        Service(upstream, SETTINGS) as service,
    ):
        service.legato("callers", "grant", PLATFORM, "--all-accounts")
        since = first_request_id()
        calls = [_plan(service, Path(folder), number, dice) for number in range(callers)]
        provider.awaited = {call.tag for call in calls if call.plan.leaving == "stays"}
        ledger = LedgerReader.of_file(service.data)
        findings = Findings(len(calls))
        try:
            watching = asyncio.create_task(_watch(ledger, calls, held_s))
            places = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(_play(call, places, advance) for call in calls))
            findings.violations += await watching
            accounts = ledger.accounts_since(since, [call.account_id for call in calls])
            findings.violations += [f"audit: {each}" for each in await ledger.audit()]
        finally:
            ledger.close()
        price = read_prices(MeteringSettings().prices).current["mezzo"]
        for call in calls:
            account = accounts[call.account_id]
            findings.finished += call.told is not None
            findings.charged += bool(account.charges)
            prompt_tokens = await _prompt_tokens(call)
            found = judge(call, account, price, prompt_tokens, provider.asked.get(call.tag, []))
            findings.violations += [f"{call.tag} ({call.plan.leaving}): {each}" for each in found]
        findings.violations += [line for line in service.log_text().splitlines() if '"level":"error"' in line]
    return findings


def judge(
    call: Call, account: Account, price: Price, prompt_tokens: int, asked: list[tuple[Recorded, Reply]]
) -> list[str]:
    """Compares what the caller received, what the provider sent, and what was charged."""
    found = []
    if len(account.holds) > 1 or len(account.charges) > 1 or len(asked) > 1:
        found.append(f"doubled: {len(account.holds)} holds, {len(account.charges)} charges, asked {len(asked)} times")
    if account.held_nanos or any(hold.state == "held" for hold in account.holds):
        found.append(f"held: {account.held_nanos} nanos")
    charged, received = account.charged, call.received_tokens
    cost_nanos = price.cost_nanos(Usage(charged.prompt, 0, charged.completion)) if charged else 0
    if not account.charged_nanos == cost_nanos == CREDIT_NANOS - account.balance_nanos:
        found.append(f"lost or doubled: {account.charged_nanos} nanos for what costs {cost_nanos}")
    if account.losses:
        found.append("lost: a loss is booked")
    if charged is None:
        return [*found, f"lost: {received} tokens are not charged"] if received else found
    [(recorded, reply)] = asked[:1]
    usage = Tokens(PROVIDER_PROMPT_TOKENS, reply.repeat + PROVIDER_HIDDEN_TOKENS)
    if call.told is not None and not call.told == charged == usage:
        found.append(f"lost or doubled: told {call.told}, charged {charged}, and the provider says {usage}")
    sent = max(0, min(recorded.writes - 1, reply.repeat)) if recorded.writes else reply.repeat
    is_end_sent = recorded.answered or recorded.writes > reply.repeat
    is_counted = charged.prompt == prompt_tokens and received <= charged.completion <= sent
    if not is_counted and not (is_end_sent and charged == usage):
        found.append(f"lost or doubled: received {received}, charged {charged}, the provider sent {sent}")
    return found


def _plan(service: Service, folder: Path, number: int, dice: random.Random) -> Call:
    account_id, tag = service.new_account(), f"chat-{number:08x}"
    metadata: tuple[tuple[str, str], ...] = ("x-legato-caller", PLATFORM), ("x-legato-account", account_id)
    if dice.random() < 0.5:
        metadata = (("authorization", f"Bearer {service.new_key(account_id)}"),)
    plan = Plan(
        socket_of(service.data),
        metadata,
        f"{tag} How is the weather in Paris?",
        stream=dice.random() < 0.8,
        leaving=dice.choice(LEAVINGS),
        after_s=dice.uniform(0, LONGEST_S),
        book=folder / tag,
    )
    return Call(tag, account_id, plan)


async def _play(call: Call, places: asyncio.Semaphore, advance: Callable[[], None]) -> None:
    async with places:
        # Forked from a process that has imported everything: most are gone sooner than that takes.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([run.__module__])
        process: ForkServerProcess = context.Process(target=run, args=(call.plan,), daemon=True)
        process.start()
        ended = asyncio.get_running_loop().run_in_executor(None, process.join)
        if call.plan.leaving == "killed":
            while not call.plan.book.exists() and not ended.done():
                await asyncio.sleep(0.01)
            await asyncio.wait([asyncio.ensure_future(ended)], timeout=call.plan.after_s)
            process.kill()
        await ended
        call.gone_at_s = time.monotonic()
        process.close()
        advance()


async def _watch(ledger: LedgerReader, calls: list[Call], held_s: float) -> list[str]:
    """Returns which holds stay for longer than they may; ends when all callers are gone, and all holds, or too late."""
    by_account = {call.account_id: call for call in calls}
    late: set[str] = set()
    while True:
        now_s = time.monotonic()
        held = [by_account[hold.account_id] for hold in ledger.live_holds()]
        late |= {call.tag for call in held if call.gone_at_s is not None and now_s - call.gone_at_s > held_s}
        are_gone = all(call.gone_at_s is not None for call in calls)
        if are_gone and all(call.tag in late for call in held):
            return [f"{tag}: held {held_s:g} s after its caller was gone" for tag in sorted(late)]
        await asyncio.sleep(0.2)


async def _prompt_tokens(call: Call) -> int:
    messages_json = json.dumps([{"role": "user", "content": call.plan.prompt}]).encode()
    return (await compose_prompt(messages_json, b"", load_character())).tokens

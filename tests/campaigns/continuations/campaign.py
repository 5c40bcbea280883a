"""Answers that are cut at random places and go on at another model, and what of it is received and in the ledger."""

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from services.metering.credit.prices import Price, read_prices
from services.metering.settings import MeteringSettings
from services.router.prompts.prompt import compose_prompt, load_character
from services.router.prompts.tokens import count
from services.rules.usage import Usage
from tests.campaigns.faults.books.ledger import Account, LedgerReader, first_request_id
from tests.campaigns.faults.chat import Tokens
from tests.campaigns.faults.client import TAG
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.continuing import WAYS, ContinuingUpstream, Cut, Script, prefix_of
from tests.support.upstreams.openai import Recorded
from tests.support.waiting import WAIT_TIMEOUT_S

AT_ONCE: Final = 16
CREDIT_NANOS: Final = 5 * 10**9
SETTINGS: Final = {"LEGATO_REQUESTS_PER_MINUTE": "1000000", "LEGATO_REQUEST_BURST": "100000"}
MODELS: Final = ("one", "two", "three", "four")
IDLE_S: Final = 2.0

ROUTES: Final = "".join(
    f"""
[providers.{name}]
kind = "openai"
base_url = "{{base_url}}"
zero_retention = true

[models.{name}]
provider = "{name}"
name = "{name}"
context_tokens = 100000
max_output_tokens = 10000
idle_s = {IDLE_S}
continues = true
"""
    for name in MODELS
) + "".join(f"\n[classes.{name}]\nmodels = {json.dumps(MODELS)}\n" for name in ("mezzo", "forte", "fortissimo"))

# Scripts, emoji of several code points, blanks of all kinds, quotes and what repeats itself.
WORDS: Final = (
    "answer", "Orléans", "naïve", "Straße", "Ελλάδα", "мир", "שלום", "سلام", "नमस्ते", "日本語", "한국어", "ไทย",
    "🌍", "👩🏽\u200d🚀", "🇨🇦", "e\u0301", "ha", "ha", "ha", '"quoted"', "back\\slash", "`code`", "x = {'a': 1}",
    "12,345.67", "https://host.test/?q=a&b", "\u2028", "\u00a0", "\t", "\r\n", "\n\n", "   ", "\n- ", ".", ",", "!",
    "…", "—",
)  # fmt: skip


class Provider(ContinuingUpstream):
    """Has a script for each chat, which it knows by the chat's tag."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, Script] = {}

    def script_of(self, recorded: Recorded) -> Script | None:
        found = TAG.search(recorded.body)
        assert found is not None
        return self.scripts[found[0].decode()]


@dataclass
class Chat:
    tag: str
    account_id: str
    api_key: str
    script: Script
    cuts: int
    text: str = ""
    finish_reason: str | None = None
    told: Tokens | None = None
    error: str = ""

    @property
    def body(self) -> dict[str, Any]:
        return {"model": "mezzo", "stream": True, "messages": [{"role": "user", "content": f"{self.tag} How?"}]}

    @property
    def continued(self) -> int:
        """How often it went on; not the calls before its first word."""
        return sum(bool(prefix_of(call)) for call in self.script.calls)


@dataclass
class Findings:
    chats: int = 0
    # Cuts that the provider made, by their way, and how many of them were continued.
    cuts: Counter[str] = field(default_factory=Counter)
    continued: int = 0
    violations: list[str] = field(default_factory=list)


async def run_campaign(cuts: int, dice: random.Random, advance: Callable[[int], None] = lambda cuts: None) -> Findings:
    provider = Provider()
    with (
        UpstreamThread(provider) as upstream,
        Service(upstream, SETTINGS, routes=ROUTES) as service,
    ):
        since = first_request_id()
        chats: list[Chat] = []
        while sum(chat.cuts for chat in chats) < cuts:
            chats.append(_plan(service, provider, len(chats), dice))
        findings = Findings(len(chats))
        for chat in chats:
            findings.cuts.update(cut.way for cut in chat.script.cuts if cut is not None)
        places = asyncio.Semaphore(AT_ONCE)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(WAIT_TIMEOUT_S)) as session:
            await asyncio.gather(*(_play(chat, session, service, places, advance) for chat in chats))
        ledger = LedgerReader.of_file(service.data)
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while ledger.live_holds():
                    await asyncio.sleep(0.1)
            accounts = ledger.accounts_since(since, [chat.account_id for chat in chats])
            findings.violations += [f"audit: {each}" for each in await ledger.audit()]
        finally:
            ledger.close()
        price = read_prices(MeteringSettings().prices).current["mezzo"]
        for chat in chats:
            findings.continued += chat.continued
            found = judge(chat, accounts[chat.account_id], price, await _prompt_tokens(chat))
            findings.violations += [f"{chat.tag}: {each}" for each in found]
        findings.violations += [line for line in service.log_text().splitlines() if '"level":"error"' in line]
    return findings


def judge(chat: Chat, account: Account, price: Price, prompt_tokens: int) -> list[str]:
    """Compares what the client received with the uncut answer, and both with what was charged."""
    script, found = chat.script, []
    if chat.text != script.text or chat.error:
        at = next((at for at, pair in enumerate(zip(chat.text, script.text, strict=False)) if len({*pair}) > 1), -1)
        found.append(f"text: {len(chat.text)} of {len(script.text)} characters, first other one {at} {chat.error}")
    if chat.finish_reason != script.finish_reason:
        found.append(f"end: {chat.finish_reason}")
    first, *others = script.calls
    for call in others:
        said = prefix_of(call)
        added = [{"role": "assistant", "content": said}] if said else []
        if call["messages"] != first["messages"] + added:
            found.append("prompt: more was said than the answer so far")
    usage = counted = Tokens(prompt_tokens, count(script.text))
    if not chat.continued and not (chat.cuts and chat.told == counted):
        # One that was cut before anything was delivered is begun again, and may be counted by either.
        usage = Tokens(*script.usage)
    if not chat.told == account.charged == usage:
        found.append(f"usage: told {chat.told}, charged {account.charged}, and it is {usage}")
    if len(account.holds) != 1 or len(account.charges) != 1 or account.held_nanos or account.losses:
        found.append(f"books: {len(account.holds)} holds, {len(account.charges)} charges, {account.held_nanos} held")
    cost_nanos = price.cost_nanos(Usage(usage.prompt, 0, usage.completion))
    if not account.charged_nanos == cost_nanos == CREDIT_NANOS - account.balance_nanos:
        found.append(f"charge: {account.charged_nanos} nanos for what costs {cost_nanos}")
    return found


def _plan(service: Service, provider: Provider, number: int, dice: random.Random) -> Chat:
    account_id, tag = service.new_account(), f"chat-{number:08x}"
    # Some are not cut, for a model that always fails is given up.
    cuts = dice.choice((0, 0, 1, 1, 1, 2))
    text = "Well" + "".join(dice.choice(("", " ")) + dice.choice(WORDS) for _ in range(dice.randint(5, 200)))
    texts, at = [], 0
    while at < len(text):
        length = dice.randint(1, 12)
        texts.append(text[at : at + length])
        at += length
    provider.scripts[tag] = script = Script(
        texts,
        escapes=dice.random() < 0.5,
        finish_reason=dice.choice(("stop", "stop", "length")),
        cuts=deque(Cut(dice.choice(WAYS), dice.random()) for _ in range(cuts)),
    )
    return Chat(tag, account_id, service.new_key(account_id), script, cuts)


async def _play(
    chat: Chat,
    session: aiohttp.ClientSession,
    service: Service,
    places: asyncio.Semaphore,
    advance: Callable[[int], None],
) -> None:
    headers, url = {"Authorization": f"Bearer {chat.api_key}"}, f"{service.base_url}/chat/completions"
    async with places:
        async with session.post(url, json=chat.body, headers=headers) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    _receive(chat, json.loads(line[6:]))
        if chat.cuts:
            advance(chat.cuts)


def _receive(chat: Chat, event: dict[str, Any]) -> None:
    if "error" in event:
        chat.error = json.dumps(event["error"])
        return
    for choice in event["choices"]:
        chat.text += choice["delta"].get("content") or ""
        chat.finish_reason = choice["finish_reason"] or chat.finish_reason
    if usage := event.get("usage"):
        chat.told = Tokens(usage["prompt_tokens"], usage["completion_tokens"])


async def _prompt_tokens(chat: Chat) -> int:
    messages_json = json.dumps(chat.body["messages"]).encode()
    return (await compose_prompt(messages_json, b"", load_character())).tokens

"""One round: some chats at once, one death, everything back, and the books compared."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.metering.prices import Price, read_prices
from services.metering.settings import MeteringSettings
from services.router.character import load_character
from services.router.prompt import compose_prompt
from tests.faults.chat import Chat, Customer, Tokens
from tests.faults.client import converse
from tests.faults.house import House
from tests.faults.judge import Circumstances, Kind, Violation, judge
from tests.faults.ledger import Account, first_request_id
from tests.faults.parts import WHOLE
from tests.faults.points import Point

CHAT_PATIENCE_S: Final = 30.0
# After the last chat has ended: nothing may be open for longer.
QUIET_PATIENCE_S: Final = 30.0
# Between two looks: first, and at most.
POLL_S: Final = (0.005, 0.05)
LONGEST_ROUND_S: Final = 0.08

_numbers = itertools.count(1)


class Stuck(Exception):
    """The house did not come to rest: says what is still open."""


@dataclass
class Outcome:
    point: Point
    seed: int
    passes: int
    reached: bool = False
    chats: list[Chat] = field(default_factory=list)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    free: int = 0
    # The house is not at rest, and not fit for another round.
    is_stuck: bool = False


class Stage:
    """A house, and the customers who chat in it round after round."""

    def __init__(self, house: House, customers: list[Customer], guest: Customer) -> None:
        """`guest` asks after every round whether the house serves."""
        self._house = house
        self._customers = customers
        self._guest = guest
        self._balances: dict[str, int] = {}
        self._prices: Mapping[str, Price] = read_prices(MeteringSettings().prices)
        self._character = load_character()

    @classmethod
    async def prepare(cls, house: House, size: int) -> "Stage":
        *customers, guest = await house.new_customers(size + 1)
        stage = cls(house, customers, guest)
        found = house.ledger.accounts_since(first_request_id(), [customer.account_id for customer in customers])
        stage._balances = {account_id: account.balance_nanos for account_id, account in found.items()}
        await stage._probe()
        return stage

    async def play(self, point: Point, seed: int) -> Outcome:
        house, dice = self._house, random.Random(seed)
        passes = dice.randint(1, point.most_passes)
        outcome = Outcome(point, seed, passes)
        died_before = house.deaths()
        cast = list(point.cast)
        dice.shuffle(cast)
        customers = dice.sample(self._customers, len(cast))
        outcome.chats = [
            Chat(part, customer, f"chat-{next(_numbers):08x}") for part, customer in zip(cast, customers, strict=True)
        ]
        house.provider.expect(outcome.chats)
        since = first_request_id()
        checkpoints: dict[str, Tokens] = {}
        try:
            if point.place:
                house.arm(point.place, passes)
            if point.after:
                house.arm(point.after, dice.randint(1, 8))
            killing = asyncio.create_task(self._kill(point, dice, since, outcome.chats, checkpoints))
            await asyncio.gather(*(converse(chat, house.address, CHAT_PATIENCE_S) for chat in outcome.chats))
            await killing
            await self._quiet()
            outcome.reached = not house.is_armed(point.place)
            house.disarm()
            await self._probe()
            await self._quiet()
        except Stuck as stuck:
            outcome.violations.append(Violation("stuck", str(stuck)))
            outcome.is_stuck = True
        died = {name.partition("-")[0] for name in house.deaths() - died_before}
        outcome.reached = outcome.reached and point.process in died
        edge_died = "edge" in died
        seen = Circumstances(edge_died, edge_died and point.may_miss_mark, point.how == "machine lost", checkpoints)
        await self._compare(outcome, since, seen)
        return outcome

    async def _kill(
        self, point: Point, dice: random.Random, since: str, chats: list[Chat], checkpoints: dict[str, Tokens]
    ) -> None:
        """From outside, where the point asks for that."""
        victim = point.process if point.process != "edge" else dice.choice(self._house.edge_names)
        if point.how == "any moment":
            await asyncio.sleep(dice.uniform(0, LONGEST_ROUND_S))
            self._house.kill(victim)
        if point.how == "machine lost":
            async for _ in _looks():
                accounts = self._house.ledger.accounts_since(since, [chat.customer.account_id for chat in chats])
                known = {name: tokens for name, account in accounts.items() if (tokens := _checkpoint(account))}
                if all(chat.customer.account_id in known or chat.received.is_over for chat in chats):
                    checkpoints.update(known)
                    break
            await self._house.replace(dice.choice(self._house.edge_names))

    async def _quiet(self) -> None:
        """Until every process serves, no credit is held and no slot is taken."""
        open_still = ""
        async for _ in _looks():
            open_still = self._house.open_still()
            if not open_still:
                return
        raise Stuck(open_still)

    async def _probe(self) -> None:
        """The house serves again, from end to end."""
        said = b""
        async for _ in _looks():
            chat = Chat(WHOLE, self._guest, f"chat-{next(_numbers):08x}")
            self._house.provider.expect_too(chat)
            await converse(chat, self._house.address, CHAT_PATIENCE_S)
            if chat.received.ending == "done":
                return
            said = bytes(chat.received.raw)
        raise Stuck(f"the house does not serve: {said!r}")

    async def _compare(self, outcome: Outcome, since: str, seen: Circumstances) -> None:
        account_ids = [chat.customer.account_id for chat in outcome.chats]
        outcome.accounts = self._house.ledger.accounts_since(since, account_ids)
        prompts = {
            chat.tag: (await compose_prompt(chat.messages_json, b"", self._character)).tokens for chat in outcome.chats
        }
        verdict = judge(outcome.chats, outcome.accounts, prompts, self._prices, seen)
        outcome.violations += verdict.violations
        outcome.free = verdict.free
        for chat in outcome.chats:
            account_id = chat.customer.account_id
            account = outcome.accounts[account_id]
            off_nanos = account.balance_nanos - (self._balances[account_id] - account.charged_nanos)
            if off_nanos:
                kind: Kind = "lost" if off_nanos > 0 else "doubled"
                outcome.violations.append(Violation(kind, f"the balance is {off_nanos:+} nanos off", chat))
            self._balances[account_id] = account.balance_nanos


async def _looks() -> AsyncIterator[None]:
    """One after the other, ever more seldom, until patience ends."""
    now_s = asyncio.get_running_loop().time
    give_up_at_s = now_s() + QUIET_PATIENCE_S
    pause_s, longest_s = POLL_S
    while now_s() < give_up_at_s:
        yield
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, longest_s)


def _checkpoint(account: Account) -> Tokens | None:
    """What metering knows of a running request."""
    told = [Tokens(hold.prompt_tokens, hold.completion_tokens) for hold in account.holds if hold.completion_tokens]
    return told[0] if told else None

"""Brings about what a point is about: arms its failpoints, and kills or freezes from outside."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.campaigns.faults.books.ledger import Account
from tests.campaigns.faults.chat import Chat, Tokens
from tests.campaigns.faults.harnesses.harness import FaultHarness
from tests.campaigns.faults.points import Point

# Most rounds are over by then.
LONGEST_ROUND_S: Final = 0.08
# A month is closed and pruned by then.
LONGEST_CLOSING_S: Final = 1.2
# Longer than an exchange may be silent.
PAUSE_S: Final = 3.0
# Between two looks: first, and at most.
POLL_S: Final = (0.005, 0.05)
MOST_FIRST_PASSES: Final = 8


class Reaper:
    def __init__(
        self, harness: FaultHarness, point: Point, passes: int, dice: random.Random, chats: list[Chat], since: str
    ) -> None:
        """`since` is not above the id of any of the chats."""
        self._harness = harness
        self._point = point
        self._passes = passes
        self._dice = dice
        self._chats = chats
        self._since = since
        self._edge, self._metering = dice.choice(harness.edge_names), dice.choice(harness.metering_names)
        # What metering knew of each account's request when its edge and journal were lost.
        self.checkpoints: dict[str, Tokens] = {}

    @property
    def _victims(self) -> list[str]:
        if self._point.process == "everything":
            return self._harness.names
        one_of_many = {"edge": self._edge, "metering": self._metering}
        return [one_of_many.get(self._point.process, self._point.process)]

    async def work(self, timeout_s: float) -> None:
        """While the chats go on."""
        if self._point.after:
            self._harness.arm(self._point.after, self._dice.randint(1, MOST_FIRST_PASSES))
        if self._point.place:
            if self._point.after and self._point.process != "edge":
                # It is come to by chats that have nothing to do with recovery.
                async for _ in looks(timeout_s):
                    if not self._harness.is_armed(self._point.after) or all(
                        chat.received.is_over for chat in self._chats
                    ):
                        break
            self._harness.arm(self._point.place, self._passes)
        longest_s = LONGEST_ROUND_S
        if self._point.month_ends and self._harness.clock is not None:
            await asyncio.sleep(self._dice.uniform(0, LONGEST_ROUND_S))
            self._harness.clock.begin_month()
            longest_s = LONGEST_CLOSING_S
        if self._point.how == "any moment":
            await asyncio.sleep(self._dice.uniform(0, longest_s))
            self._signal(signal.SIGKILL)
        elif self._point.how == "paused":
            await self._pause()
        elif self._point.waits_for_sweep:
            await self._take_away(timeout_s)

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.uniform(0, LONGEST_ROUND_S))
        self._signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        self._signal(signal.SIGCONT)

    async def _take_away(self, timeout_s: float) -> None:
        """The edge that has the chats, once metering knows something of each."""
        old_journals = await self._old_pages(timeout_s) if self._point.how == "machine rebooted" else {}
        async for _ in looks(timeout_s):
            accounts = self._harness.ledger.accounts_since(
                self._since, [chat.customer.account_id for chat in self._chats]
            )
            known = {name: tokens for name, account in accounts.items() if (tokens := _checkpoint(account))}
            if all(chat.customer.account_id in known or chat.received.is_over for chat in self._chats):
                self.checkpoints = known
                break
        if self._point.loses_journal:
            await self._harness.replace(self._edge, old_journals)
            return
        self._signal(signal.SIGSTOP)
        async for _ in looks(timeout_s):
            if not self._harness.ledger.live_holds():
                break
        self._signal(signal.SIGCONT if self._point.how == "frozen" else signal.SIGKILL)

    async def _old_pages(self, timeout_s: float) -> dict[Path, bytes]:
        """Takes them before any delivery."""
        async for _ in looks(timeout_s):
            if all(chat.asked for chat in self._chats):
                break
        return self._harness.pages()

    def _is_over(self) -> bool:
        return all(chat.received.is_over for chat in self._chats)

    def _signal(self, number: signal.Signals) -> None:
        for name in self._victims:
            self._harness.send_signal(name, number)


async def looks(timeout_s: float) -> AsyncIterator[None]:
    """One after the other, ever more seldom, until the time is over."""
    now_s = asyncio.get_running_loop().time
    give_up_at_s = now_s() + timeout_s
    pause_s, longest_s = POLL_S
    while now_s() < give_up_at_s:
        yield
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, longest_s)


def _checkpoint(account: Account) -> Tokens | None:
    """Metering's count for a running request."""
    told = [Tokens(hold.prompt_tokens, hold.completion_tokens) for hold in account.holds if hold.completion_tokens]
    return told[0] if told else None

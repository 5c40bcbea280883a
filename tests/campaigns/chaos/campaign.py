"""Two models of a class, of which the first fails and comes back, in one way after the other, while clients ask on."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.campaigns.chaos.clients import Clients, Outcome
from tests.campaigns.chaos.failing_upstream import FAULTS, FIRST, GONE, SPARE, FailingUpstream
from tests.support.service import Service
from tests.support.waiting import WAIT_TIMEOUT_S

MODEL = """
[providers.{name}]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.{name}]
provider = "{name}"
name = "{name}"
context_tokens = 10000
max_output_tokens = 1000
first_byte_s = {timeout_s}
whole_s = {timeout_s}
"""
CLASSES = """
[classes]
mezzo = {{ models = ["first", "spare"] }}
forte = {{ models = ["first", "spare"] }}
fortissimo = {{ models = ["first", "spare"] }}
"""
# How long the first may be silent before the spare is asked; the spare may take its time on a busy machine.
FIRST_TIMEOUT_S, SPARE_TIMEOUT_S = 1.0, 60.0

SETTINGS = {"LEGATO_REQUESTS_PER_MINUTE": "1000000", "LEGATO_REQUEST_BURST": "100000"}

COLUMNS = ("fault", "chats", "by the first", "by the spare", "second attempts", "cut", "errors", "median ms", "max ms")


@dataclass
class Tally:
    fault: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        found = [f"{self.fault}: {outcome.error}" for outcome in self.outcomes if outcome.error]
        if self.fault != GONE:
            # Only a model that is gone in the middle of an answer can cut it.
            found += [f"{self.fault}: a stream was cut" for outcome in self.outcomes if outcome.is_cut]
        for name in (FIRST, SPARE):
            if not self.count(name):
                found.append(f"{self.fault}: no chat was served by the {name}")
        return found

    def count(self, name: str) -> int:
        return sum(outcome.by == name for outcome in self.outcomes)

    def row(self) -> list[str]:
        times_s = sorted(outcome.took_s for outcome in self.outcomes)
        return [
            self.fault,
            *(str(count) for count in (len(times_s), self.count(FIRST), self.count(SPARE))),
            str(sum(outcome.attempt > 1 for outcome in self.outcomes)),
            str(sum(outcome.is_cut for outcome in self.outcomes)),
            str(sum(bool(outcome.error) for outcome in self.outcomes)),
            f"{1000 * times_s[len(times_s) // 2]:.0f}",
            f"{1000 * times_s[-1]:.0f}",
        ]


def table(tallies: Sequence[Tally]) -> str:
    rows = [COLUMNS, *(tally.row() for tally in tallies)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def run(
    clients: int, fault_s: float, say: Callable[[str], None] = lambda fault: None, faults: Sequence[str] = FAULTS
) -> list[Tally]:
    with FailingUpstream(FIRST) as first, FailingUpstream(SPARE) as spare:
        routes = (
            MODEL.format(name=FIRST, base_url=first.base_url, timeout_s=FIRST_TIMEOUT_S)
            + MODEL.format(name=SPARE, base_url=spare.base_url, timeout_s=SPARE_TIMEOUT_S)
            + CLASSES
        )
        with Service(first, SETTINGS, routes=routes) as service:
            api_key = service.new_key(service.new_account("1000"))
            tallies = asyncio.run(_run(service.base_url, api_key, first, clients, fault_s, say, faults))
            assert service.audit() == []
    return tallies


async def _run(
    base_url: str,
    api_key: str,
    first: FailingUpstream,
    clients: int,
    fault_s: float,
    say: Callable[[str], None],
    faults: Sequence[str],
) -> list[Tally]:
    tallies: list[Tally] = []
    for fault in faults:
        say(fault)
        tally = Tally(fault)
        async with Clients(base_url, api_key, clients, tally.outcomes.append):
            await _until_served_by_the_first(tally)
            await first.fail(fault)
            await asyncio.sleep(fault_s)
            await first.come_back(fault)
            await _until_served_by_the_first(tally)
        tallies.append(tally)
    return tallies


async def _until_served_by_the_first(tally: Tally) -> None:
    """Waits until it serves 20 chats."""
    served_before = tally.count(FIRST)
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while tally.count(FIRST) < served_before + 20:
            await asyncio.sleep(0.05)

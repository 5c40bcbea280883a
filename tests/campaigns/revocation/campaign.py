"""A campaign: waves of revocations in one harness, until there were enough."""

import random
from typing import Protocol

from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.revocation.client import WORD
from tests.campaigns.revocation.harness import RevocationHarness
from tests.campaigns.revocation.tally import Findings
from tests.campaigns.revocation.wave import Wave
from tests.support.upstreams.openai import Reply, Upstream

IN_A_WAVE = 10
# Says something twenty times a second, for far longer than any wave lasts.
ENDLESS = Reply(contents=[WORD], repeat=20_000, event_delay_s=0.05)


class OnWave(Protocol):
    def __call__(self, *, by: int) -> None: ...


async def run(forks: Forks, database_url: str, revocations: int, dice: random.Random, on_wave: OnWave) -> Findings:
    """`on_wave` is told how many keys each wave has dealt with."""
    findings = Findings()
    async with (
        Upstream(ENDLESS) as upstream,
        RevocationHarness(forks, database_url, upstream.base_url).opened() as harness,
    ):
        good = await harness.new_key()
        left = revocations
        while left > 0:
            played = min(IN_A_WAVE, left)
            try:
                await Wave(harness, good, dice, findings).play(played)
            except AssertionError as error:
                # What the others have seen is worth telling all the same.
                findings.violations.append(f"a wave came to nothing: {error}")
            left -= played
            on_wave(by=played)
        findings.violations += await harness.ledger.audit()
        findings.violations += harness.errors()
    return findings

"""The short form of `make revocations`, and how it counts."""

import logging
import random

import pytest

from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.revocation import campaign
from tests.campaigns.revocation.client import Answer
from tests.campaigns.revocation.faults import CUT_OFF
from tests.campaigns.revocation.tally import Findings, Refusal, refusal_of

REVOCATIONS = 10


@pytest.mark.long
async def test_no_edge_accepts_a_key_after_its_revocation_returned(postgres_url: str) -> None:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    dealt_with: list[int] = []

    def record(*, by: int) -> None:
        dealt_with.append(by)

    async with Forks() as forks:
        findings = await campaign.run(forks, postgres_url, REVOCATIONS, random.Random(), record)
    assert findings.violations == []
    assert findings.revocations + findings.suspensions == sum(dealt_with) == REVOCATIONS
    assert sum(len(tally.refusals) for tally in findings.tallies.values()) == 3 * REVOCATIONS


def answers(*statuses: int) -> list[Answer]:
    """A second apart, each of which took half of that."""
    return [Answer(float(at_s), at_s + 0.5, status) for at_s, status in enumerate(statuses)]


def test_time_to_refusal_ends_with_the_first_answer_after_which_none_accepted_the_key() -> None:
    refusal = refusal_of(answers(200, 200, 503, 200, 503, 401), began_at_s=2.0, returned_at_s=3.5)
    assert refusal == Refusal(latest_accepted_s=-0.5, accepted_after=0, refused_after_s=2.5, by_status=503)


def test_key_that_was_refused_before_the_call_began_took_no_time() -> None:
    assert refusal_of(answers(200, 503, 503, 401), began_at_s=2.0, returned_at_s=2.5).refused_after_s == 0


def test_request_that_was_sent_after_the_return_and_accepted_breaks_the_promise() -> None:
    findings = Findings()
    findings.add(CUT_OFF, "key_a", "edge-1", refusal_of(answers(200, 200, 200, 401), 0.0, 1.5))
    findings.add(CUT_OFF, "key_a", "edge-2", refusal_of(answers(200, 200, 200, 401), 0.0, 0.5))
    assert [violation.partition(":")[0] for violation in findings.violations] == ["PROMISE BROKEN", "BOUND BROKEN"]
    [row] = [line for line in findings.table().splitlines() if line.startswith(CUT_OFF)]
    assert row.removeprefix(CUT_OFF).split()[:2] == ["2", "3"]

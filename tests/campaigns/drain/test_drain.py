"""The short form of `make drain-test`, and how it judges."""

import logging
from collections import Counter
from dataclasses import replace

import pytest

from tests.campaigns.drain import campaign
from tests.campaigns.drain.campaign import ALONE, CHAT_NANOS, Findings, Pace, Plan, Restart, Step
from tests.campaigns.drain.clients import Chat, flaw_of
from tests.campaigns.drain.harness import NAMES
from tests.campaigns.faults.harnesses.zygote import Forks

DONE = "data: [DONE]\n\n"


@pytest.mark.long
async def test_no_client_notices_that_processes_are_restarted(postgres_url: str, valkey_url: str) -> None:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    pace = Pace(words=6, word_every_s=0.2)
    plan = Plan(NAMES, [Step(name) for name in ALONE])
    async with Forks() as forks:
        findings = await campaign.run(forks, postgres_url, valkey_url, 24, pace, plan)
    assert findings.violations == []
    assert all(restart.running for restart in findings.restarts)


@pytest.mark.parametrize(
    ("status", "text", "stream", "flaw"),
    [
        (200, f"rain rain {DONE}", True, ""),
        (200, '{"content":"rain rain "}', False, ""),
        (200, f"rain {DONE}", True, "not whole"),
        (200, 'rain rain data: {"error":{}}\n\n', True, "no [DONE]"),
        (503, '{"error":{"message":"Later."}}', True, "503 Later."),
    ],
)
def test_only_a_whole_answer_is_good(status: int, text: str, stream: bool, flaw: str) -> None:
    assert flaw_of(status, text, words=2, stream=stream) == flaw


def test_whatever_was_noticed_is_told() -> None:
    good = Findings(
        restarts=[Restart(Step("edge-1"), [Chat(0, "edge-1")], [], exit_code=0, took_s=1.0)],
        chats=2,
        flaws=Counter(),
        statuses=Counter({"200": 3}),
        charged_nanos=2 * CHAT_NANOS,
        held_nanos=0,
        audit=[],
        complaints=[],
    )
    assert good.violations == []
    assert good.table().splitlines()[1].split() == ["edge-1", "1", "1", "0", "0", "0", "0", "1.0"]
    assert replace(good, flaws=Counter({"503": 1})).violations == ["1 chats: 503"]
    assert replace(good, statuses=Counter({"503": 1})).violations == ["1 reads: 503"]
    assert replace(good, charged_nanos=CHAT_NANOS).violations == [f"{CHAT_NANOS} charged for 2 chats of {CHAT_NANOS}"]
    assert replace(good, held_nanos=5).violations == ["5 are still held"]
    assert replace(good, audit=["wrong"], complaints=["broken"]).violations == ["wrong", "broken"]
    killed = [Restart(Step("edge-1"), [], [], exit_code=-9, took_s=1.0)]
    assert replace(good, restarts=killed).violations == ["edge-1 ended with -9"]

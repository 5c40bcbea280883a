"""The short form of `make chaos`, and how it judges."""

import logging
import random

import pytest

from tests.campaigns.chaos import campaign
from tests.campaigns.chaos.campaign import Tally
from tests.campaigns.chaos.clients import Outcome, judge
from tests.campaigns.chaos.failing_upstream import FIRST, GONE, SPARE

DONE = "data: [DONE]\n\n"
ERROR = 'data: {"error":{"code":"upstream_error"}}\n\n'


@pytest.mark.long
def test_no_client_sees_an_error_that_the_second_model_could_have_prevented() -> None:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    tallies = campaign.run(clients=8, fault_s=1.0, faults=random.sample((GONE, "silent", "broken", "full"), 2))
    assert [violation for tally in tallies for violation in tally.violations] == []


@pytest.mark.parametrize(
    ("status", "text", "stream", "expected"),
    [
        (200, f"first {DONE}", True, Outcome(1, FIRST, 1)),
        (200, '{"content":"spare "}', False, Outcome(1, SPARE, 1)),
        (200, f"first {ERROR}", True, Outcome(1, FIRST, 1, is_cut=True)),
        (200, "first ", True, Outcome(1, FIRST, 1, error="a stream that ended in silence")),
        (200, ERROR, True, Outcome(1, error="an error before the first word")),
        (502, '{"error":{"code":"upstream_error"}}', True, Outcome(1, error="502 upstream_error")),
    ],
)
def test_only_a_whole_answer_is_good_and_only_what_has_begun_can_be_cut(
    status: int, text: str, stream: bool, expected: Outcome
) -> None:
    assert judge(1, status, 1, text, stream=stream) == expected


def test_what_breaks_the_promise_is_told() -> None:
    served = [Outcome(0.1, FIRST, 1), Outcome(0.2, SPARE, 2)]
    cut = Outcome(0.1, FIRST, 1, is_cut=True)
    assert Tally(GONE, [*served, cut]).violations == []
    assert Tally("broken", [*served, cut]).violations == ["broken: a stream was cut"]
    assert Tally(GONE, [*served, Outcome(1, error="502 x")]).violations == ["gone: 502 x"]
    assert Tally(GONE, served[1:]).violations == ["gone: no chat was served by the first"]
    assert Tally(GONE, served).row() == ["gone", "2", "1", "1", "1", "0", "0", "200", "200"]

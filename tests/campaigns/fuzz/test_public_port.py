"""The short form of fuzzing the public port, and that it sees what it is there to see."""

import random

import pytest

from tests.campaigns.fuzz.public_port import fuzz_public_port
from tests.campaigns.fuzz.requests import RequestMaker

SEED = 1
SECONDS = 3.0
# Small enough for a slow machine to stay far below every limit.
LARGEST_BYTES = 128 * 1024


@pytest.mark.long
async def test_no_request_hurts_anybody_else() -> None:
    assert await fuzz_public_port(SECONDS, SEED, LARGEST_BYTES) == []


def test_request_is_made_again_by_its_seed() -> None:
    first, again, other = (RequestMaker(random.Random(seed), ["key"], 10_000).make() for seed in (1, 1, 2))
    assert first == again
    assert first != other

"""The short form of fuzzing the console's port."""

import pytest

from tests.campaigns.fuzz.console_port import fuzz_console_port

SEED = 1
SECONDS = 3.0
# Small enough for a slow machine to stay far below every limit.
LARGEST_BYTES = 128 * 1024


@pytest.mark.long
async def test_no_request_hurts_the_console() -> None:
    assert await fuzz_console_port(SECONDS, SEED, LARGEST_BYTES) == []

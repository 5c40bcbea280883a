"""The short form of `make fuzz`, and that it sees what it is there to see."""

import asyncio
import time

import pytest

from tests.campaigns.fuzz.documents import fuzz_documents
from tests.campaigns.fuzz.provider_side import fuzz_provider_side
from tests.campaigns.fuzz.watch import LoopWatch, MemoryWatch

SEED = 1
SECONDS = 4.0
# Small enough for a slow machine to stay far below every limit.
LARGEST_BYTES = 128 * 1024


@pytest.mark.long
async def test_no_answer_of_a_provider_hurts_anybody_else() -> None:
    assert await fuzz_provider_side(SECONDS, SEED, LARGEST_BYTES) == []


@pytest.mark.long
async def test_no_document_hurts_anybody_else() -> None:
    assert await fuzz_documents(SECONDS, SEED) == []


async def test_work_without_a_break_is_seen() -> None:
    watch = LoopWatch()
    with watch.watching():
        await asyncio.sleep(0)
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.05:
            pass
        await asyncio.sleep(0)
        assert watch.take_longest_s() >= 0.05
        assert watch.take_longest_s() == 0


def test_memory_that_was_given_back_is_seen() -> None:
    watch = MemoryWatch()
    if not watch.sees_peaks:
        pytest.skip(
            "The kernel does not let a process reset its peak of memory (/proc/self/clear_refs), so none can be seen."
        )
    taken = bytearray(b"x" * 64 * 1024 * 1024)
    del taken
    assert watch.most_growth_bytes() >= 48 * 1024 * 1024

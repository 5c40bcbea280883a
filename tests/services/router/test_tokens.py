"""Token counts."""

import asyncio

from services.router import tokens


def test_known_text_has_its_known_count() -> None:
    assert tokens.count("Hello, world!") == 4


async def test_big_texts_are_counted_alike_and_let_others_run() -> None:
    text = "All happy families are alike. " * 20_000
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    counted = await tokens.count_all([text])
    other.cancel()
    cuts = len(text) // tokens.SLICE_CHARACTERS
    assert abs(counted - tokens.count(text)) <= 2 * cuts
    assert turns >= cuts

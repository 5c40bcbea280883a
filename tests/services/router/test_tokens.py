"""Token counts."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

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


_texts = st.lists(
    st.sampled_from(
        [
            "hello",
            "World",
            " ",
            "\n",
            "  ",
            "don't",
            "\u4e2d\u6587",
            "12345",
            "!!",
            "a/b\n",
            "\U0001f3b5",
            "\t",
            "\u00a0",
        ]
    )
).map("".join)


@given(text=_texts, data=st.data())
def test_count_does_not_depend_on_where_the_network_cuts(text: str, data: st.DataObject) -> None:
    running = tokens.RunningCount()
    rest = text
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        running.add(rest[:cut])
        rest = rest[cut:]
    assert running.tokens == tokens.count(text)


def test_text_without_spaces_is_counted_in_bounded_parts() -> None:
    running = tokens.RunningCount()
    for _ in range(5_000):
        running.add("\u4e2d\u6587")
    assert len(running._word) <= tokens.LONGEST_WORD_CHARACTERS + 2
    assert running.tokens >= 5_000

"""Counts tokens, by OpenAI's o200k vocabulary.

For models with another vocabulary that is an estimate, good enough to fit a window and to size a hold; what is charged
in the end is what the provider counted, where it says so.
"""

import asyncio
from collections.abc import Iterable

from rs_bpe.bpe import openai

# The tokenizer holds the interpreter while it counts: about a millisecond for this much.
SLICE_CHARACTERS = 16 * 1024

_vocabulary = openai.o200k_base()


def count(text: str) -> int:
    """For texts that are surely short: a piece of an answer."""
    return int(_vocabulary.count(text))


async def count_all(texts: Iterable[str]) -> int:
    """For texts of any length: lets others run in between. A cut between two slices may cost a token more."""
    tokens = 0
    counted_characters = 0
    for text in texts:
        for start in range(0, len(text), SLICE_CHARACTERS):
            piece = text[start : start + SLICE_CHARACTERS]
            tokens += _vocabulary.count(piece)
            counted_characters += len(piece)
            if counted_characters >= SLICE_CHARACTERS:
                counted_characters = 0
                await asyncio.sleep(0)
    return tokens

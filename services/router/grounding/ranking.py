"""Ranks passages by relevance to a question: by the frequencies of its words in them, and by how rare these are."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from services.router.grounding.blocks import PASSAGES
from services.router.grounding.records import Passage
from services.router.grounding.words import words_of

PASSAGES_MOST: Final = 8

# Passages that score below this share of the best are dropped.
WORTH_OF_BEST: Final = 0.5

# BM25's k1: how quickly repeated occurrences of a word saturate.
SATURATION: Final = 1.2


def rank_passages(passages: Sequence[Passage], weights: Mapping[str, float], budget_tokens: int) -> list[Passage]:
    """Returns the best passages first, within the token budget; `weights` are those of the question's words."""
    scored = sorted(((_score(passage, weights), passage) for passage in passages), key=_by_score)
    return list(islice(PASSAGES.fitting(_worthwhile(scored), budget_tokens), PASSAGES_MOST))


def _worthwhile(scored: Sequence[tuple[float, Passage]]) -> Iterator[Passage]:
    return (passage for score, passage in scored if score >= WORTH_OF_BEST * scored[0][0])


def _score(passage: Passage, weights: Mapping[str, float]) -> float:
    times = Counter(words_of(passage.text))
    return sum(
        weight * times[word] * (SATURATION + 1) / (times[word] + SATURATION)
        for word, weight in weights.items()
        if times[word]
    )


def _by_score(scored: tuple[float, Passage]) -> tuple[float, str, int]:
    score, passage = scored
    return -score, passage.attachment_id, passage.page

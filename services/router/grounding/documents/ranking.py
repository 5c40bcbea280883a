"""Ranks passages by relevance to a question: by the frequencies of its words in them, and by how rare these are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from services.router.grounding.blocks import PASSAGES
from services.router.grounding.documents.words import words_of
from services.router.grounding.records import Passage

PASSAGES_MOST: Final = 8

# Passages that score below this share of the best are dropped.
WORTH_OF_BEST: Final = 0.5

# BM25's k1: how quickly repeated occurrences of a word saturate.
SATURATION: Final = 1.2


def rank_passages(passages: Sequence[Passage], weights: Mapping[str, float], budget_tokens: int) -> list[Passage]:
    """Returns the best passages first, within the token budget; `weights` are those of the question's words."""
    scores = {passage: _score(passage, weights) for passage in passages}
    least = WORTH_OF_BEST * max(scores.values(), default=0.0)
    worthwhile = [passage for passage in passages if scores[passage] >= least]
    ranked = sorted(worthwhile, key=lambda passage: (-scores[passage], passage.attachment_id, passage.page))
    return list(islice(PASSAGES.fitting(ranked, budget_tokens), PASSAGES_MOST))


def _score(passage: Passage, weights: Mapping[str, float]) -> float:
    times = Counter(words_of(passage.text))
    return sum(
        weight * times[word] * (SATURATION + 1) / (times[word] + SATURATION)
        for word, weight in weights.items()
        if times[word]
    )

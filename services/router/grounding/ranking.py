"""Ranks passages by relevance to a question.

The index maps words to passages, and so shows how rare a word is; the rarest words of the question select the passages
to decrypt, and the word frequencies in those determine the ranking.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from services.router.grounding.blocks import passage_tokens, passages_block
from services.router.grounding.records import Passage
from services.router.grounding.sealing import Sealer, name_place, passage_place
from services.router.grounding.store import index
from services.router.grounding.words import words_of
from services.router.prompts import tokens

# Limits on index entries read, and on passages decrypted.
POSTINGS_MOST: Final = 5_000
OPENED_MOST: Final = 24
PASSAGES_MOST: Final = 8

# Passages that score below this share of the best are dropped.
WORTH_OF_BEST: Final = 0.5

# BM25's k1: how quickly repeated occurrences of a word saturate.
SATURATION: Final = 1.2


def find_passages(
    connection: index.Connection, sealer: Sealer, account_id: str, words: Sequence[str], budget_tokens: int
) -> list[Passage]:
    """Returns the best passages first."""
    total = index.count_passages(connection, account_id)
    if not total:
        return []
    by_digest = sealer.find_words(account_id, words)
    counts = index.count_by_word(connection, account_id, by_digest)
    rarity = {digest: math.log(1 + (total - count + 0.5) / (count + 0.5)) for digest, count in counts.items()}
    looked_up, read = [], 0
    for digest, count in sorted(counts.items(), key=lambda item: item[1]):
        read += count
        if read > POSTINGS_MOST:
            break
        looked_up.append(digest)
    if not looked_up:
        return []
    scores: Counter[int] = Counter()
    for passage_id, digest in index.find_postings(connection, account_id, looked_up):
        scores[passage_id] += rarity[digest]  # type: ignore[assignment]
    best = [passage_id for passage_id, _ in scores.most_common(OPENED_MOST)]
    weights = {by_digest[digest]: rarity[digest] for digest in counts}
    opened = [_open(found, sealer, account_id) for found in index.get_passages(connection, account_id, best)]
    scored = [(_score(passage, weights), passage) for passage in opened if passage is not None]
    return _within_budget(sorted(scored, key=_by_score), budget_tokens)


def _open(found: index.FoundPassage, sealer: Sealer, account_id: str) -> Passage | None:
    name = sealer.open_if_possible(found.name, name_place(account_id, found.attachment_id))
    text = sealer.open_if_possible(found.text, passage_place(account_id, found.passage_id))
    if name is None or text is None:
        return None
    return Passage(found.attachment_id, name, found.page, found.tokens, text)


def _score(passage: Passage, weights: dict[str, float]) -> float:
    times = Counter(words_of(passage.text))
    return sum(
        weight * times[word] * (SATURATION + 1) / (times[word] + SATURATION)
        for word, weight in weights.items()
        if times[word]
    )


def _by_score(scored: tuple[float, Passage]) -> tuple[float, str, int]:
    score, passage = scored
    return -score, passage.attachment_id, passage.page


def _within_budget(scored: Sequence[tuple[float, Passage]], budget_tokens: int) -> list[Passage]:
    """Keeps the passages that fit the token budget when rendered as a block."""
    left_tokens = budget_tokens - tokens.count_once(passages_block(()))
    taken: list[Passage] = []
    for score, passage in scored:
        if len(taken) == PASSAGES_MOST or score < WORTH_OF_BEST * scored[0][0]:
            break
        if passage.tokens > left_tokens:
            continue
        taken_tokens = passage_tokens(passage)
        if taken_tokens <= left_tokens:
            left_tokens -= taken_tokens
            taken.append(passage)
    return taken

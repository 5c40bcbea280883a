"""Ranks passages by relevance to a question.

The index maps words to passages, and so shows how rare a word is; the rarest words of the question select the passages
to decrypt, and the word frequencies in those determine the ranking.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from services.router.grounding.blocks import passage_tokens, passages_block
from services.router.grounding.records import Passage
from services.router.grounding.sealing import Sealer, name_place, passage_place
from services.router.grounding.store import index
from services.router.prompts import tokens
from services.router.schema.messages import Messages, decode_string

LONGEST_WORD: Final = 64

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
# Vowels in Indic scripts are combining marks, which belong to the word.
_INDIAN: Final = "\u0900-\u0963\u0966-\u0dff"
# A change of script separates words, even without a space.
_RUNS: Final = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_INDIAN}])+")
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]")
# Soft hyphens, joiners and elongation marks inside words are ignored.
_PASSED_OVER: Final = frozenset("\u00ad\u0640\u200b\u200c\u200d\u2060\ufeff")

# Stop words.
_EMPTY_WORDS: Final = frozenset(
    _RUNS.findall("""
    a about all also am an and any are as at be been but by can could did do does for from had has have he her him his
    how i if in into is it its just like me more my no not of on one or our out she should so some tell than that the
    their them then there these they this to up us was we were what when where which who why will with would you your
    hello hi hey please thanks thank yes ok okay
    """)
)


def words_of(text: str) -> Iterator[str]:
    """Yields the normalized words in order, without stop words."""
    is_plain = text.isascii()
    for run in _RUNS.findall((text if is_plain else _without_accents(text)).casefold()):
        if not is_plain and _UNSPACED_RUN.match(run):
            # Bigrams approximate words.
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        elif run not in _EMPTY_WORDS and (len(run) > 1 or run.isdigit()):
            yield _singular(run)[:LONGEST_WORD]


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c) and c not in _PASSED_OVER)


def _singular(word: str) -> str:
    """Strips an English plural; other languages may lose an s, but in texts and questions alike."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


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
    # The index has words of unfinished documents, too, which are not in the total.
    rarity = {digest: math.log(1 + (max(0, total - count) + 0.5) / (count + 0.5)) for digest, count in counts.items()}
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
    weights = {by_digest[digest]: rarity[digest] for digest in counts}
    opened = [_open(found, sealer, account_id) for found in _get_best(connection, account_id, scores)]
    scored = [(_score(passage, weights), passage) for passage in opened if passage is not None]
    return _within_budget(sorted(scored, key=_by_score), budget_tokens)


def _get_best(connection: index.Connection, account_id: str, scores: "Counter[int]") -> Sequence[index.FoundPassage]:
    best = [passage_id for passage_id, _ in scores.most_common(OPENED_MOST)]
    found = index.get_passages(connection, account_id, best)
    if len(found) == len(best):
        return found
    # Passages of a document that is being added or erased are in the way of others.
    owned = index.find_owned(connection, account_id, scores)
    best = [passage_id for passage_id, _ in scores.most_common() if passage_id in owned][:OPENED_MOST]
    return index.get_passages(connection, account_id, best)


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


# Earlier questions give context to the last one, such as what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 128
# How many messages are searched for questions; older ones are irrelevant.
LOOKED_AT_MOST: Final = 1_000


def question_words(messages: Messages) -> list[str]:
    """Returns distinct words, those of the last message first; of a long message those at its end."""
    words: dict[str, None] = {}
    for text in _last_questions(messages):
        from_its_end = dict.fromkeys(reversed(list(words_of(text[-CHARACTERS_MOST:]))))
        new_words = [word for word in from_its_end if word not in words][: WORDS_MOST - len(words)]
        words.update(dict.fromkeys(reversed(new_words)))
    return list(words)


def _last_questions(messages: Messages) -> Iterator[str]:
    left = MESSAGES_MOST
    for message in islice(reversed(messages.parsed), LOOKED_AT_MOST):
        if message.role != "user":
            continue
        yield " ".join(map(decode_string, message.texts))
        left -= 1
        if not left:
            return

"""Searches the word index, which maps words to passages, and so shows how rare a word is.

The rarest words of a question select the passages to decrypt.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.records import Holding, Passage
from services.router.grounding.sealing import Sealer
from services.router.grounding.store.tables import attachments, notes, passages, postings

Connection = sa.Connection

# Limits on index entries read, and on passages decrypted.
POSTINGS_MOST: Final = 5_000
OPENED_MOST: Final = 24


def find_passages(
    connection: sa.Connection, sealer: Sealer, account_id: str, by_digest: Mapping[bytes, str]
) -> tuple[list[Passage], dict[str, float]]:
    """Returns passages with the rarest of these words, and the weight of each word; `by_digest` has the words."""
    total = sa.select(sa.func.coalesce(sa.func.sum(attachments.c.passages), 0))
    passages_total = int(connection.execute(total.where(attachments.c.account_id == account_id)).scalar_one())
    if not passages_total:
        return [], {}
    counts = _count_by_word(connection, account_id, by_digest)
    # The index has words of unfinished documents, too, which are not in the total.
    rarity = {
        digest: math.log(1 + (max(0, passages_total - count) + 0.5) / (count + 0.5)) for digest, count in counts.items()
    }
    looked_up, read = [], 0
    for digest, count in sorted(counts.items(), key=lambda item: item[1]):
        read += count
        if read > POSTINGS_MOST:
            break
        looked_up.append(digest)
    scores: Counter[int] = Counter()
    is_looked_up = (postings.c.account_id == account_id, postings.c.word.in_(looked_up))
    for passage_id, digest in connection.execute(
        sa.select(postings.c.passage_id, postings.c.word).where(*is_looked_up)
    ):
        scores[passage_id] += rarity[bytes(digest)]  # type: ignore[assignment]
    weights = {by_digest[digest]: rarity[digest] for digest in counts}
    return _open_best(connection, sealer, account_id, scores), weights


def find_holding(connection: sa.Connection, account_id: str) -> Holding:
    """Returns whether the account has notes, and whether it has attachments."""
    has_notes = sa.exists().where(notes.c.account_id == account_id)
    has_attachments = sa.exists().where(attachments.c.account_id == account_id)
    return Holding(*map(bool, connection.execute(sa.select(has_notes, has_attachments)).one()))


def _count_by_word(connection: sa.Connection, account_id: str, words: Collection[bytes]) -> dict[bytes, int]:
    """Counts the passages that contain each word; words without any are omitted."""
    query = (
        sa.select(postings.c.word, sa.func.count())
        .where(postings.c.account_id == account_id, postings.c.word.in_(words))
        .group_by(postings.c.word)
    )
    return {bytes(word): count for word, count in connection.execute(query)}


def _open_best(connection: sa.Connection, sealer: Sealer, account_id: str, scores: "Counter[int]") -> list[Passage]:
    is_owned = (passages.c.attachment_id == attachments.c.attachment_id, attachments.c.account_id == account_id)
    name_key_version = attachments.c.key_version.label("name_key_version")
    sealed = sa.select(passages, attachments.c.sealed_name, name_key_version).where(*is_owned)
    best = [passage_id for passage_id, _ in scores.most_common(OPENED_MOST)]
    found = connection.execute(sealed.where(passages.c.passage_id.in_(best))).all()
    if len(found) < len(best):
        # Passages of a document that is being added or erased are in the way of others.
        query = sa.select(passages.c.passage_id).where(*is_owned, passages.c.passage_id.in_(scores))
        owned = set(connection.execute(query).scalars())
        best = [passage_id for passage_id, _ in scores.most_common() if passage_id in owned][:OPENED_MOST]
        found = connection.execute(sealed.where(passages.c.passage_id.in_(best))).all()
    opened = []
    for row in found:
        name = sealer.open(Sealed(row.name_key_version, row.sealed_name), account_id, "name", row.attachment_id)
        text = sealer.open(Sealed(row.key_version, row.sealed_text), account_id, "passage", str(row.passage_id))
        if name is not None and text is not None:
            opened.append(Passage(row.attachment_id, name, row.page, text))
    return opened

"""Queries the word index, which maps words to passages."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.store.tables import attachments, notes, passages, postings

Connection = sa.Connection


@dataclass(frozen=True, slots=True)
class FoundPassage:
    passage_id: int
    attachment_id: str
    page: int
    tokens: int
    text: Sealed
    name: Sealed


def count_passages(connection: sa.Connection, account_id: str) -> int:
    total = sa.select(sa.func.coalesce(sa.func.sum(attachments.c.passages), 0))
    return int(connection.execute(total.where(attachments.c.account_id == account_id)).scalar_one())


def count_by_word(connection: sa.Connection, account_id: str, words: Collection[bytes]) -> dict[bytes, int]:
    """Counts the passages that contain each word; words without any are omitted."""
    query = (
        sa.select(postings.c.word, sa.func.count())
        .where(postings.c.account_id == account_id, postings.c.word.in_(words))
        .group_by(postings.c.word)
    )
    return {bytes(word): count for word, count in connection.execute(query)}


def find_postings(connection: sa.Connection, account_id: str, words: Collection[bytes]) -> list[tuple[int, bytes]]:
    query = sa.select(postings.c.passage_id, postings.c.word).where(
        postings.c.account_id == account_id, postings.c.word.in_(words)
    )
    return [(passage_id, bytes(word)) for passage_id, word in connection.execute(query)]


def find_owned(connection: sa.Connection, account_id: str, passage_ids: Collection[int]) -> set[int]:
    """Returns those of the passages that are not of an unfinished attachment."""
    query = (
        sa.select(passages.c.passage_id)
        .join(attachments, attachments.c.attachment_id == passages.c.attachment_id)
        .where(attachments.c.account_id == account_id, passages.c.passage_id.in_(passage_ids))
    )
    return set(connection.execute(query).scalars())


def get_passages(connection: sa.Connection, account_id: str, passage_ids: Collection[int]) -> list[FoundPassage]:
    query = (
        sa.select(passages, attachments.c.sealed_name, attachments.c.key_version.label("name_key_version"))
        .join(attachments, attachments.c.attachment_id == passages.c.attachment_id)
        .where(attachments.c.account_id == account_id, passages.c.passage_id.in_(passage_ids))
    )
    return [
        FoundPassage(
            row.passage_id,
            row.attachment_id,
            row.page,
            row.tokens,
            Sealed(row.key_version, row.sealed_text),
            Sealed(row.name_key_version, row.sealed_name),
        )
        for row in connection.execute(query)
    ]


def find_holding(connection: sa.Connection, account_id: str) -> tuple[bool, bool]:
    """Returns whether the account has notes, and whether it has attachments."""
    has_notes = sa.exists().where(notes.c.account_id == account_id)
    has_attachments = sa.exists().where(attachments.c.account_id == account_id)
    found = connection.execute(sa.select(has_notes, has_attachments)).one()
    return bool(found[0]), bool(found[1])

"""Stores attachments with their passages and the index of their words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from services.router.grounding.records import DocumentKind
from services.router.grounding.sealing import Sealed
from services.router.grounding.store.tables import attachments, delete_for_good, passages, postings

PASSAGES_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class SealedAttachment:
    attachment_id: str
    account_id: str
    created_at_us: int
    kind: DocumentKind
    size_bytes: int
    pages: int
    # Number of passages.
    passages: int
    name: Sealed


@dataclass(frozen=True, slots=True)
class SealedPassage:
    passage_id: int
    page: int
    tokens: int
    text: Sealed
    words: frozenset[bytes]


def add_attachment(
    connection: sa.Connection,
    attachment: SealedAttachment,
    contents: Sequence[SealedPassage],
    most: int,
    on_progress: Callable[[int], None],
) -> bool:
    """Adds an attachment in full or not at all. Returns False if the account has reached its limit."""
    kept = sa.select(sa.func.count()).select_from(attachments).where(attachments.c.account_id == attachment.account_id)
    if connection.execute(kept).scalar_one() >= most:
        return False
    connection.execute(
        attachments.insert().values(
            attachment_id=attachment.attachment_id,
            account_id=attachment.account_id,
            created_at_us=attachment.created_at_us,
            kind=attachment.kind,
            size_bytes=attachment.size_bytes,
            pages=attachment.pages,
            passages=attachment.passages,
            key_version=attachment.name.key_version,
            sealed_name=attachment.name.data,
        )
    )
    left, done = iter(contents), 0
    while some := list(islice(left, PASSAGES_AT_ONCE)):
        connection.execute(passages.insert(), [_to_values(passage, attachment.attachment_id) for passage in some])
        words = [
            {"account_id": attachment.account_id, "word": word, "passage_id": passage.passage_id}
            for passage in some
            for word in passage.words
        ]
        if words:
            connection.execute(postings.insert(), words)
        done += len(some)
        on_progress(done)
    return True


def list_attachments(connection: sa.Connection, account_id: str) -> list[SealedAttachment]:
    """Returns the attachments, oldest first."""
    query = (
        sa.select(attachments)
        .where(attachments.c.account_id == account_id)
        .order_by(attachments.c.created_at_us, attachments.c.attachment_id)
    )
    return [_to_attachment(row) for row in connection.execute(query)]


def remove_attachment(connection: sa.Connection, account_id: str, attachment_id: str) -> bool:
    """Deletes an attachment; returns False if there is none."""
    is_it = (attachments.c.account_id == account_id, attachments.c.attachment_id == attachment_id)
    if connection.execute(sa.select(attachments.c.attachment_id).where(*is_it)).one_or_none() is None:
        return False
    of_it = sa.select(passages.c.passage_id).where(passages.c.attachment_id == attachment_id)
    delete_for_good(connection, postings, postings.c.passage_id.in_(of_it))
    delete_for_good(connection, passages, passages.c.attachment_id == attachment_id)
    delete_for_good(connection, attachments, *is_it)
    return True


def _to_values(passage: SealedPassage, attachment_id: str) -> dict[str, Any]:
    return {
        "passage_id": passage.passage_id,
        "attachment_id": attachment_id,
        "page": passage.page,
        "tokens": passage.tokens,
        "key_version": passage.text.key_version,
        "sealed_text": passage.text.data,
    }


def _to_attachment(row: sa.Row[Any]) -> SealedAttachment:
    return SealedAttachment(
        row.attachment_id,
        row.account_id,
        row.created_at_us,
        DocumentKind(row.kind),
        row.size_bytes,
        row.pages,
        row.passages,
        Sealed(row.key_version, row.sealed_name),
    )

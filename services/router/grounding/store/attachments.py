"""Stores attachments with their passages and the index of their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.records import DocumentKind
from services.router.grounding.store.tables import attachments, change_for_good, delete_for_good, passages, postings

# Stand in the place of the account while an attachment's passages are being added, or erased: nothing that reads by
# account finds it then. Its time is that of the last portion. What is to be erased never comes back.
ADDING: Final = ""
ERASING: Final = "erasing"


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


def begin_attachment(connection: sa.Connection, attachment: SealedAttachment, most: int) -> bool:
    """Adds an attachment that has no passages yet. Returns False if the account has reached its limit."""
    if _count(connection, attachment.account_id) >= most:
        return False
    connection.execute(
        attachments.insert().values(
            attachment_id=attachment.attachment_id,
            account_id=ADDING,
            created_at_us=attachment.created_at_us,
            kind=attachment.kind,
            size_bytes=attachment.size_bytes,
            pages=attachment.pages,
            passages=attachment.passages,
            key_version=attachment.name.key_version,
            sealed_name=attachment.name.data,
        )
    )
    return True


def add_passages(
    attachment: SealedAttachment, contents: Sequence[SealedPassage], now_us: int, connection: sa.Connection
) -> bool:
    """Adds passages. Returns False if the attachment was erased meanwhile."""
    touch = attachments.update().where(*_is_one(ADDING, attachment.attachment_id)).values(created_at_us=now_us)
    if not change_for_good(connection, touch):
        return False
    connection.execute(passages.insert(), [_to_values(passage, attachment.attachment_id) for passage in contents])
    words = [
        {"account_id": attachment.account_id, "word": word, "passage_id": passage.passage_id}
        for passage in contents
        for word in passage.words
    ]
    if words:
        connection.execute(postings.insert(), words)
    return True


def finish_attachment(connection: sa.Connection, attachment: SealedAttachment, most: int) -> bool:
    """Gives an attachment with all its passages to its account. Returns False if the account has reached its limit, or
    the attachment was erased meanwhile."""
    if _count(connection, attachment.account_id) >= most:
        return False
    finish = (
        attachments.update()
        .where(*_is_one(ADDING, attachment.attachment_id))
        .values(account_id=attachment.account_id, created_at_us=attachment.created_at_us)
    )
    return bool(change_for_good(connection, finish))


def list_unfinished(connection: sa.Connection, before_us: int) -> list[tuple[str, str]]:
    """Returns what stands for the account of each, and the id, where no work was done since then."""
    query = sa.select(attachments.c.account_id, attachments.c.attachment_id).where(
        attachments.c.account_id.in_((ADDING, ERASING)), attachments.c.created_at_us < before_us
    )
    return [(row.account_id, row.attachment_id) for row in connection.execute(query)]


def list_attachments(connection: sa.Connection, account_id: str) -> list[SealedAttachment]:
    """Returns the attachments, oldest first."""
    query = (
        sa.select(attachments)
        .where(attachments.c.account_id == account_id)
        .order_by(attachments.c.created_at_us, attachments.c.attachment_id)
    )
    return [_to_attachment(row) for row in connection.execute(query)]


def begin_erasing(connection: sa.Connection, account_id: str, attachment_id: str, now_us: int) -> bool:
    """Takes an attachment from its account, or one that is being added; returns False if there is none."""
    take = attachments.update().where(*_is_one(account_id, attachment_id))
    return bool(change_for_good(connection, take.values(account_id=ERASING, created_at_us=now_us)))


def erase_portion(connection: sa.Connection, attachment_id: str, most: int) -> bool:
    """Deletes so many passages of an attachment that is to be erased, and in the end itself. Returns whether there is
    more to delete."""
    is_it = _is_one(ERASING, attachment_id)
    if connection.execute(sa.select(attachments.c.attachment_id).where(*is_it)).one_or_none() is None:
        return False
    some = sa.select(passages.c.passage_id).where(passages.c.attachment_id == attachment_id).limit(most)
    passage_ids = list(connection.execute(some).scalars())
    delete_for_good(connection, postings, postings.c.passage_id.in_(passage_ids))
    delete_for_good(connection, passages, passages.c.passage_id.in_(passage_ids))
    return bool(passage_ids) or not delete_for_good(connection, attachments, *is_it)


def _count(connection: sa.Connection, account_id: str) -> int:
    kept = sa.select(sa.func.count()).select_from(attachments).where(attachments.c.account_id == account_id)
    return int(connection.execute(kept).scalar_one())


def _is_one(account_id: str, attachment_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return attachments.c.attachment_id == attachment_id, attachments.c.account_id == account_id


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

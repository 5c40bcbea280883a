"""Stores attachments with their passages and the index of their words."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.records import Attachment, DocumentKind
from services.router.grounding.sealing import Sealer
from services.router.grounding.store.closed_accounts import require_open
from services.router.grounding.store.tables import (
    attachments,
    change_for_good,
    delete_for_good,
    open_row,
    passages,
    postings,
    seal_row,
)

# Stand in the place of the account while an attachment's passages are being added, or erased: nothing that reads by
# account finds it then. Its time is that of the last portion. What is to be erased never comes back.
ADDING: Final = ""
ERASING: Final = "erasing"


# Values of a row, by column.
RowValues = dict[str, Any]


def begin_attachment(connection: sa.Connection, sealer: Sealer, attachment: Attachment, most: int) -> bool:
    """Adds an attachment that has no passages yet. Returns False if the account has reached its limit."""
    if _count(connection, attachment.account_id) >= most:
        return False
    row = seal_row(sealer, attachment, attachment.attachment_id, "name")
    connection.execute(attachments.insert().values(row | {"account_id": ADDING}))
    require_open(connection, attachment.account_id)
    return True


def add_passages(
    connection: sa.Connection,
    attachment_id: str,
    passage_rows: Sequence[RowValues],
    posting_rows: Sequence[RowValues],
    now_us: int,
) -> bool:
    """Adds passages with their words. Returns False if the attachment was erased meanwhile."""
    touch = attachments.update().where(*_is_one(ADDING, attachment_id)).values(created_at_us=now_us)
    if not change_for_good(connection, touch):
        return False
    connection.execute(passages.insert(), passage_rows)
    if posting_rows:
        connection.execute(postings.insert(), posting_rows)
    return True


def finish_attachment(connection: sa.Connection, attachment: Attachment, most: int) -> bool:
    """Gives an attachment with all its passages to its account. Returns False if the account has reached its limit, or
    the attachment was erased meanwhile."""
    if _count(connection, attachment.account_id) >= most:
        return False
    finish = (
        attachments.update()
        .where(*_is_one(ADDING, attachment.attachment_id))
        .values(account_id=attachment.account_id, created_at_us=attachment.created_at_us)
    )
    is_there = bool(change_for_good(connection, finish))
    require_open(connection, attachment.account_id)
    return is_there


def list_unfinished(connection: sa.Connection, before_us: int) -> list[tuple[str, str]]:
    """Returns what stands for the account of each, and the id, where no work was done since then."""
    query = sa.select(attachments.c.account_id, attachments.c.attachment_id).where(
        attachments.c.account_id.in_((ADDING, ERASING)), attachments.c.created_at_us < before_us
    )
    return [(row.account_id, row.attachment_id) for row in connection.execute(query)]


def list_attachments(connection: sa.Connection, sealer: Sealer, account_id: str) -> list[Attachment]:
    """Returns the attachments, oldest first; one that cannot be decrypted has no name."""
    query = (
        sa.select(attachments)
        .where(attachments.c.account_id == account_id)
        .order_by(attachments.c.created_at_us, attachments.c.attachment_id)
    )
    rows = (open_row(sealer, row, row.attachment_id, "name") for row in connection.execute(query))
    return [Attachment(**row | {"kind": DocumentKind(row["kind"])}) for row in rows]


def list_passages(
    connection: sa.Connection, sealer: Sealer, account_id: str, attachment_id: str, skip: int, limit: int
) -> list[tuple[int, str]] | None:
    """Returns the page and the text of passages, in order; None if there is no such attachment. A text that cannot be
    decrypted is empty."""
    if connection.execute(sa.select(attachments.c.kind).where(*_is_one(account_id, attachment_id))).first() is None:
        return None
    query = sa.select(passages).where(passages.c.attachment_id == attachment_id)
    order = passages.c.position, passages.c.page, passages.c.passage_id
    found = []
    for row in connection.execute(query.order_by(*order).offset(skip).limit(limit)):
        sealed = Sealed(row.key_version, row.sealed_text)
        found.append((row.page, sealer.open(sealed, account_id, "passage", str(row.passage_id)) or ""))
    return found


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

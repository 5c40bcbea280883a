"""Stores which accounts are closed. Whatever adds something for an account looks here, after it has added it: then an
erasure has either seen it, or has come before and is seen."""

import sqlalchemy as sa

from services.chassis.database.insert import insert_into
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.router.grounding.store.tables import attachments, closed_accounts, notes


def close_account(connection: sa.Connection, account_id: str, now_us: int) -> None:
    """Closes an account, and waits for those who are adding something."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text(f"LOCK TABLE {notes.name}, {attachments.name} IN SHARE ROW EXCLUSIVE MODE"))
    added = insert_into(connection, closed_accounts).values(account_id=account_id, closed_at_us=now_us)
    connection.execute(added.on_conflict_do_nothing())


def require_open(connection: sa.Connection, account_id: str) -> None:
    is_closed = sa.select(closed_accounts.c.account_id).where(closed_accounts.c.account_id == account_id)
    if connection.execute(is_closed).first() is not None:
        raise LegatoError(Reason.NOT_FOUND, Sentence("library_closed"))

"""A column type for email addresses: encrypted in the database, plain text in records."""

from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from services.auth.store.encryption import EmailCipher
from services.chassis.database.database import Database

# By database. Whoever copies rows without a cipher copies them as they are.
_ciphers: WeakKeyDictionary[sa.Dialect, EmailCipher] = WeakKeyDictionary()


def use_cipher(database: Database, cipher: EmailCipher) -> None:
    _ciphers[database.engine.dialect] = cipher


class EncryptedEmail(sa.TypeDecorator[str]):
    """Equal addresses are equal in the database too, so that conditions work as on plain text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        cipher = _ciphers.get(dialect)
        return value if value is None or cipher is None else cipher.encrypt(value)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> str | None:
        cipher = _ciphers.get(dialect)
        return value if value is None or cipher is None else cipher.decrypt(value)


class EncryptedText(EncryptedEmail):
    """The same for other texts."""

    cache_ok = True


def encrypt_anew(connection: sa.Connection, table: sa.Table, cipher: EmailCipher, column: str = "email") -> int:
    """Encrypts texts that are plain, or under an earlier key; returns how many."""
    [row_id] = table.primary_key
    stored = sa.type_coerce(table.c[column], sa.Text)
    rows = connection.execute(sa.select(row_id, stored.label("stored")).where(stored != "")).all()
    # Without its key an address stays as it is: the key may come back.
    changes = [
        {"row": row[0], "plain": plain}
        for row in rows
        if not cipher.is_newest(row.stored) and (plain := cipher.decrypt(row.stored))
    ]
    if changes:
        update = table.update().where(row_id == sa.bindparam("row"))
        connection.execute(update.values({column: sa.bindparam("plain")}), changes)
    return len(changes)

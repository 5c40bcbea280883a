"""A column type for email addresses and what notices say: encrypted in the database, plain text in records."""

from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from services.auth.core.encryption import TextCipher
from services.chassis.database.database import Database

# By database. A copy of rows without a cipher leaves them as they are.
_ciphers: WeakKeyDictionary[sa.Dialect, TextCipher] = WeakKeyDictionary()


def use_cipher(database: Database, cipher: TextCipher) -> None:
    _ciphers[database.engine.dialect] = cipher


class Encrypted(sa.TypeDecorator[str]):
    """Equal texts are equal in the database too, so that conditions work as on plain text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        cipher = _ciphers.get(dialect)
        return value if value is None or cipher is None else cipher.encrypt(value)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> str | None:
        cipher = _ciphers.get(dialect)
        return value if value is None or cipher is None else cipher.decrypt(value)


def encrypt_anew(connection: sa.Connection, metadata: sa.MetaData, cipher: TextCipher) -> int:
    """Encrypts texts that are plain, or under an earlier key, in all tables; returns how many."""
    columns = [column for table in metadata.tables.values() for column in table.c]
    return sum(_encrypt_column(connection, each, cipher) for each in columns if isinstance(each.type, Encrypted))


def _encrypt_column(connection: sa.Connection, column: sa.Column[str], cipher: TextCipher) -> int:
    [row_id] = column.table.primary_key
    stored = sa.type_coerce(column, sa.Text)
    rows = connection.execute(sa.select(row_id, stored.label("stored")).where(stored != "")).all()
    # Without its key a text stays as it is: the key may come back.
    changes = [
        {"row": row[0], "plain": plain}
        for row in rows
        if not cipher.is_newest(row.stored) and (plain := cipher.decrypt(row.stored))
    ]
    if changes:
        update = sa.update(column.table).where(row_id == sa.bindparam("row"))
        connection.execute(update.values({column: sa.bindparam("plain")}), changes)
    return len(changes)

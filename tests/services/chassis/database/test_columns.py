from typing import Literal

import msgspec
import sqlalchemy as sa

from services.chassis.database.columns import columns_of


class Note(msgspec.Struct):
    note_id: str
    page: int
    is_open: bool
    digest: bytes
    state: Literal["new", "old"] | None = None
    read_at_us: int | None = None


def test_columns_are_the_fields_in_their_order_with_their_types() -> None:
    columns = columns_of(Note, "note_id", "page")
    assert [(column.name, type(column.type)) for column in columns] == [
        ("note_id", sa.Text),
        ("page", sa.BigInteger),
        ("is_open", sa.Boolean),
        ("digest", sa.LargeBinary),
        ("state", sa.Text),
        ("read_at_us", sa.BigInteger),
    ]
    assert [column.name for column in columns if column.primary_key] == ["note_id", "page"]

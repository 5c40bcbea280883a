from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Literal

import msgspec
import sqlalchemy as sa

from services.chassis.database.records import add, columns_of, find, find_all, get, take


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


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True, slots=True)
class Price:
    cents: int
    discount_cents: int | None = None


@dataclass(frozen=True, slots=True)
class Shirt:
    shirt_id: str
    colours: tuple[Colour, ...]
    size: Size
    price: Price
    dye: Colour | None = None


SHIRTS = [
    Shirt("one", (Colour.RED, Colour.BLUE), Size.LARGE, Price(900), Colour.BLUE),
    Shirt("two", (), Size.SMALL, Price(500, 100)),
]


def test_records_are_read_as_they_were_written_with_the_records_in_them() -> None:
    metadata = sa.MetaData()
    shirts = sa.Table("shirts", metadata, *columns_of(Shirt, "shirt_id"), sa.Column("seller", sa.Text))
    assert {column.name for column in shirts.c if column.nullable} == {"discount_cents", "dye", "seller"}
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for shirt in SHIRTS:
            add(connection, shirt, seller="shop")
        assert find_all(connection, Shirt, sa.select(shirts).order_by(shirts.c.shirt_id)) == SHIRTS
        assert find(connection, Shirt, sa.select(shirts).where(shirts.c.size == Size.SMALL)) == SHIRTS[1]
        assert get(connection, Shirt, "two") == SHIRTS[1]
        assert take(connection, Shirt, shirts.c.shirt_id == "one") == SHIRTS[0]
        assert take(connection, Shirt, shirts.c.shirt_id == "one") is None
        assert get(connection, Shirt, "one") is None

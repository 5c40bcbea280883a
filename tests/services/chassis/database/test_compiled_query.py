"""Queries on the driver's own cursor give what SQLAlchemy would give."""

import sqlalchemy as sa

from services.chassis.database.compiled_query import CompiledQuery
from services.chassis.database.database import Database

metadata = sa.MetaData()


class Shouted(sa.TypeDecorator[str]):
    """A type with a conversion of its own."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else value.upper()


things = sa.Table(
    "things",
    metadata,
    sa.Column("thing_id", sa.Text, primary_key=True),
    sa.Column("is_new", sa.Boolean, nullable=False),
    sa.Column("content", sa.LargeBinary),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("name", Shouted),
)
OF_SIZE = (
    sa.select(things)
    .where(things.c.size >= sa.bindparam("least"), things.c.name.is_not(None))
    .order_by(things.c.thing_id)
    .limit(sa.bindparam("most"))
)


def fill(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    rows = [("a", True, b"\x00", 1, "one"), ("b", False, None, 2**40, "two"), ("c", True, b"", 3, None)]
    connection.execute(things.insert(), [dict(zip(things.c.keys(), row, strict=True)) for row in rows])


async def test_rows_have_the_types_and_names_that_sqlalchemy_gives_them(database: Database) -> None:
    await database.write(fill)
    query, values = CompiledQuery(OF_SIZE), {"least": 1, "most": 5}
    for _ in range(2):
        [found, expected] = await database.read(
            lambda connection: [query.all(connection, **values), connection.execute(OF_SIZE, values).all()]
        )
        assert [tuple(row) for row in found] == [tuple(row) for row in expected]
        assert [(row.name, row.is_new, row.size) for row in found] == [("ONE", True, 1), ("TWO", False, 2**40)]
        assert [type(row.is_new) for row in found] == [bool, bool]


async def test_the_first_row_may_be_none(database: Database) -> None:
    await database.write(fill)
    query = CompiledQuery(OF_SIZE)
    first, none = await database.read(
        lambda connection: (query.first(connection, least=2, most=1), query.first(connection, least=2**50, most=1))
    )
    assert first is not None
    assert (first.thing_id, none) == ("b", None)


async def test_columns_of_one_name_stay_apart(database: Database) -> None:
    await database.write(fill)
    other = things.alias("other")
    query = CompiledQuery(
        sa.select(things.c.thing_id, other.c.thing_id, sa.func.count())
        .join(other, other.c.size > things.c.size)
        .where(things.c.thing_id == sa.bindparam("thing_id"))
        .group_by(things.c.thing_id, other.c.thing_id)
        .order_by(other.c.thing_id)
    )
    found = await database.read(lambda connection: query.all(connection, thing_id="a"))
    assert [tuple(row) for row in found] == [("a", "b", 1), ("a", "c", 1)]

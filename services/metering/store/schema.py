"""The things that tables of all slices have in common."""

from typing import Any, Final

import sqlalchemy as sa

metadata: Final = sa.MetaData()
# A row of any columns, and a query for such rows.
AnyRow = sa.Row[*tuple[Any, ...]]
AnyQuery = sa.Select[*tuple[Any, ...]]


def total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    # PostgreSQL sums integers to decimals, and nothing to null.
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger)

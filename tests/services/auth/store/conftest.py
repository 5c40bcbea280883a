from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database


@pytest.fixture
def writing(database: Database) -> Iterator[sa.Connection]:
    with database.transaction(writes=True) as connection:
        yield connection

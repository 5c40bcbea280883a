from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from tests.services.auth.console import auth, console, console_role  # noqa: F401


@pytest.fixture
def writing(database: Database) -> Iterator[sa.Connection]:
    with database.transaction(writes=True) as connection:
        yield connection

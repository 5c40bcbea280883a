from collections.abc import AsyncIterator

import pytest

from tests.services.chassis.http.hello_server import served


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a hello server."""
    async with served() as port:
        yield port

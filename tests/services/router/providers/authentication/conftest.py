from collections.abc import AsyncIterator

import pytest

from tests.support.upstreams.token_server import TokenServer


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens

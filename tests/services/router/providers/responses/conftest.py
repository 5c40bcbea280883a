from collections.abc import AsyncIterator

import pytest

from services.router.providers.responses.provider import ResponsesProvider
from tests.services.router.providers.asking import opened
from tests.support.upstreams.responses import ResponsesUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[ResponsesUpstream]:
    async with ResponsesUpstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: ResponsesUpstream) -> AsyncIterator[ResponsesProvider]:
    provider = opened(ResponsesProvider, upstream.base_url, api_key="secret", allowed_tools=True)
    yield provider
    await provider.aclose()

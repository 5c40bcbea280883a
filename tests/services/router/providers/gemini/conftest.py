from collections.abc import AsyncIterator

import pytest

from services.router.providers.base import Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from tests.services.router.providers.asking import opened
from tests.support.upstreams.gemini import GeminiUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[GeminiUpstream]:
    async with GeminiUpstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: GeminiUpstream) -> AsyncIterator[GeminiProvider]:
    provider = opened(GeminiProvider, upstream.base_url, Timeouts(), api_key="secret", version="v1")
    yield provider
    await provider.aclose()

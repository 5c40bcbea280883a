from collections.abc import AsyncIterator

import pytest

from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Timeouts
from tests.services.router.providers.asking import opened
from tests.support.upstreams.anthropic import AnthropicUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[AnthropicUpstream]:
    async with AnthropicUpstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: AnthropicUpstream) -> AsyncIterator[AnthropicProvider]:
    provider = opened(AnthropicProvider, upstream.base_url, Timeouts(), api_key="secret", version=VERSION_2026)
    yield provider
    await provider.aclose()

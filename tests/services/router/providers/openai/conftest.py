from collections.abc import AsyncIterator

import pytest

from services.router.providers.base import Timeouts
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import opened
from tests.support.upstreams.openai import Upstream


@pytest.fixture
async def provider(upstream: Upstream) -> AsyncIterator[OpenAIProvider]:
    provider = opened(OpenAIProvider, upstream.base_url, Timeouts(), api_key="secret")
    yield provider
    await provider.aclose()


@pytest.fixture
async def quick(upstream: Upstream) -> AsyncIterator[OpenAIProvider]:
    provider = opened(OpenAIProvider, upstream.base_url, QUICK)
    yield provider
    await provider.aclose()

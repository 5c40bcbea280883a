"""A router with one model server behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.services.router.harness import Router, running_router, target
from tests.support.upstreams.openai import Upstream


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def router(upstream: Upstream, socket_folder: Path, log: Log) -> AsyncIterator[Router]:
    async with running_router(socket_folder, log, {target("main"): upstream}) as router:
        yield router

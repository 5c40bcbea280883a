from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.edge.chat_harness import ChatHarness
from tests.edge.metering_harness import MeteringHarness


@pytest.fixture
async def metering_harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[MeteringHarness]:
    harness = MeteringHarness(socket_folder, tmp_path, log)
    await harness.start()
    yield harness
    await harness.close()


@pytest.fixture
async def chat_harness(socket_folder: Path, metering_harness: MeteringHarness, log: Log) -> AsyncIterator[ChatHarness]:
    await metering_harness.give(10**9)
    chat_harness = ChatHarness(socket_folder, metering_harness, log)
    yield chat_harness
    await chat_harness.close()

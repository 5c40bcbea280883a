from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.edge.chat_harness import ChatHarness
from tests.edge.rpc.rpc_harness import RpcHarness


@pytest.fixture
async def rpc_harness(socket_folder: Path, chat_harness: ChatHarness, log: Log) -> AsyncIterator[RpcHarness]:
    harness = RpcHarness(chat_harness, f"unix:{socket_folder}/chat.sock", log)
    yield harness
    await harness.close()

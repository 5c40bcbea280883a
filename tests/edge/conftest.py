from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.edge.chat_harness import Room
from tests.edge.hello_server import served
from tests.edge.metering_harness import MeteringHouse


@pytest.fixture
async def metering_house(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[MeteringHouse]:
    house = MeteringHouse(socket_folder, tmp_path, log)
    await house.start()
    yield house
    await house.close()


@pytest.fixture
async def room(socket_folder: Path, metering_house: MeteringHouse, log: Log) -> AsyncIterator[Room]:
    await metering_house.give(10**9)
    room = Room(socket_folder, metering_house, log)
    yield room
    await room.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server that says hello."""
    async with served() as port:
        yield port

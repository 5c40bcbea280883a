from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.log import Log
from tests.edge.metering_house import MeteringHouse


@pytest.fixture
async def metering_house(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[MeteringHouse]:
    house = MeteringHouse(socket_folder, tmp_path, log)
    await house.start()
    yield house
    await house.close()

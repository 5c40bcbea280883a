import pytest

from tests.fakes import FakeClock
from tests.services.chassis.gate_house import House


@pytest.fixture
def house(clock: FakeClock) -> House:
    return House(clock)

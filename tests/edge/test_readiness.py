import asyncio

from edge.backends.exchanges import Backends
from edge.readiness import Readiness
from services.chassis.telemetry.log import Log
from tests.support.fakes import FakeClock


def test_all_that_keeps_an_edge_from_serving_is_named(clock: FakeClock, log: Log) -> None:
    leaving = asyncio.Event()
    readiness = Readiness(Backends("", "", "", clock, log, None), leaving.is_set)
    assert readiness.missing() == ["starting", "auth", "router", "metering"]
    readiness.is_complete = True
    assert readiness.missing() == ["auth", "router", "metering"]
    leaving.set()
    assert readiness.missing() == ["leaving", "auth", "router", "metering"]
    assert readiness.usable_replicas() == {"auth": 0, "router": 0, "metering": 0}

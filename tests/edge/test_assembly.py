import asyncio
from typing import Any

import pytest

from edge.assembly import Assembly
from edge.backends.exchanges import Backends
from services.chassis.telemetry.log import Log
from tests.support.fakes import FakeClock


def test_all_that_keeps_an_edge_from_serving_is_named(clock: FakeClock, log: Log) -> None:
    leaving = asyncio.Event()
    absent: Any = None
    services = Backends(lambda service: "", clock, log, None, absent)
    assembly = Assembly(
        app=absent,
        early_refusals=absent,
        edge=absent,
        services=services,
        journals=absent,
        is_leaving=leaving.is_set,
    )
    assert assembly.missing() == ["starting", "auth", "router", "metering"]
    assembly.is_complete = True
    assert assembly.missing() == ["auth", "router", "metering"]
    leaving.set()
    assert assembly.missing() == ["leaving", "auth", "router", "metering"]
    assert services.usable_replicas() == {"auth": 0, "router": 0, "metering": 0}


def test_edge_that_misses_one_service_is_ready_and_says_which(
    clock: FakeClock, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent: Any = None
    services = Backends(lambda service: "", clock, log, None, absent)
    monkeypatch.setattr(services, "usable_replicas", lambda: {"auth": 2, "router": 1, "metering": 0})
    assembly = Assembly(
        app=absent,
        early_refusals=absent,
        edge=absent,
        services=services,
        journals=absent,
        is_leaving=lambda: False,
        is_complete=True,
    )
    assert (assembly.missing(), assembly.away()) == ([], ["metering"])

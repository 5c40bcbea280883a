"""Chats that are refused before a task is created for them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.access.saturation import LATENESS_TOLERATED_S, LEAST_CHATS, SAMPLE_EACH_S, EdgeSaturation
from edge.api.cors import EdgeCorsMiddleware
from edge.api.early_refusals import EarlyRefusals
from edge.backends.auth import Principal, Scope
from edge.wire.origins import parse_origins
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import Reason
from services.chassis.http.asgi import Headers
from services.chassis.load.admission import LEAST_SAMPLES
from services.chassis.telemetry.log import Log
from tests.edge.api_harness import ApiHarness
from tests.edge.auth_harness import AuthHarness, bearer
from tests.support.fakes import FakeClock

RATES: Headers = [(b"x-ratelimit-remaining-requests", b"199")]


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, clock: FakeClock, log: Log) -> AsyncIterator[AuthHarness]:
    async with AuthHarness(socket_folder, tmp_path, clock, log).opened() as harness:
        yield harness


class KnownRates:
    """The rates of a metering that was asked about every key or none."""

    headers: Headers | None = RATES

    def last_rates(self, principal: Principal) -> Headers | None:
        return self.headers


class FullEdge:
    """An edge that knows some keys, and that can be filled with chats."""

    def __init__(self, harness: AuthHarness, clock: FakeClock) -> None:
        self._clock = clock
        self._harness = harness
        self.saturation = EdgeSaturation(clock)
        self.metering = KnownRates()
        edge = ApiHarness(principals=harness.principals, metering=self.metering, saturation=self.saturation)
        cors = EdgeCorsMiddleware(edge.app, parse_origins())
        self.early_refusals = EarlyRefusals(edge.state, cors)

    def fill(self, key_id: str) -> None:
        """The edge runs so late that it has no more room for the key."""
        for _ in range(4 * LEAST_CHATS):
            self.saturation.gate.acquire(key_id)
        while not self.saturation.is_reached:
            for _ in range(2 * LEAST_SAMPLES):
                self._clock.advance(SAMPLE_EACH_S)
                self.saturation.record_lateness(10 * LATENESS_TOLERATED_S)

    def leave_until_the_limit(self, key_id: str) -> None:
        gate = self.saturation.gate
        while gate.running > gate.limit:
            gate.release(key_id)

    def refusal(self, api_key: str) -> Reason | None:
        refusal = self.early_refusals.refusal(bearer(api_key))
        return None if refusal is None else refusal[0].reason

    async def known(self, *scopes: "Scope.ValueType") -> tuple[str, str]:
        """A key that the edge remembers, and its id."""
        created = await self._harness.new_key(*scopes)
        await self._harness.principals.authenticate(bearer(created.api_key))
        return created.api_key, created.key.key_id


async def test_chat_is_refused_at_once_where_there_is_no_room_for_it(harness: AuthHarness, clock: FakeClock) -> None:
    edge = FullEdge(harness, clock)
    api_key, key_id = await edge.known()
    await harness.leased()
    assert edge.refusal(api_key) is None
    edge.fill(key_id)
    await harness.leased()

    assert edge.refusal(api_key) is Reason.SATURATED
    assert edge.early_refusals.refusal(bearer(api_key))[1] == RATES  # type: ignore[index]
    # What is not known must be asked for, so nothing is told at once.
    edge.metering.headers = None
    assert edge.refusal(api_key) is None


async def test_key_that_is_unknown_or_may_not_chat_is_told_that_first(harness: AuthHarness, clock: FakeClock) -> None:
    edge = FullEdge(harness, clock)
    _, key_id = await edge.known()
    reader, _ = await edge.known(Scope.SCOPE_USAGE)
    unknown = (await harness.new_key()).api_key
    edge.fill(key_id)
    await harness.leased()

    assert [edge.refusal(api_key) for api_key in (reader, unknown, "nonsense", "")] == [None] * 4


async def test_small_key_is_not_refused_because_of_a_greedy_one(harness: AuthHarness, clock: FakeClock) -> None:
    edge = FullEdge(harness, clock)
    greedy, greedy_id = await edge.known()
    small, _ = await edge.known()
    edge.fill(greedy_id)
    edge.leave_until_the_limit(greedy_id)
    await harness.leased()

    assert (edge.refusal(greedy), edge.refusal(small)) == (Reason.SATURATED, None)


async def test_during_maintenance_no_chat_is_refused_for_saturation(harness: AuthHarness, clock: FakeClock) -> None:
    edge = FullEdge(harness, clock)
    api_key, key_id = await edge.known()
    edge.fill(key_id)
    await harness.leased()
    assert edge.refusal(api_key) is Reason.SATURATED
    on = pb.Maintenance(is_on=True, message="Back at noon.", retry_after_s=300)
    harness.principals.maintenance.update(pb.WatchResponse(epoch=10**6, maintenance=on))
    assert edge.refusal(api_key) is None


async def test_every_dialect_of_a_chat_is_refused_in_its_own_shape(harness: AuthHarness, clock: FakeClock) -> None:
    edge = FullEdge(harness, clock)
    api_key, key_id = await edge.known()
    edge.fill(key_id)
    await harness.leased()
    told = {}
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/models"):
        answer = edge.early_refusals({"path": path, "method": "POST", "headers": bearer(api_key)})
        told[path] = None if answer is None else (answer.status, json.loads(answer.body).keys())
    assert told == {
        "/v1/chat/completions": (429, {"error"}),
        "/v1/messages": (429, {"type", "error", "request_id"}),
        "/v1/models": None,
    }

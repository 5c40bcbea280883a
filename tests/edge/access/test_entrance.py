"""Clients sent away before anything began for them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.access.entrance import Entrance
from edge.access.saturation import LATENESS_TOLERATED_S, LEAST_CHATS, SAMPLE_EACH_S, EdgeSaturation
from edge.access.wrong_keys import WrongKeyLimiter
from edge.backends.auth import Principal, Scope
from protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import Headers, HttpScope
from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import open_prompt_memory
from services.chassis.load.queueing import LEAST_SAMPLES
from services.chassis.telemetry.log import Log
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
    was_asked = False

    def last_rates(self, principal: Principal) -> Headers | None:
        return self.headers

    async def rates(self, principal: Principal) -> Headers:
        self.was_asked = True
        return RATES


class Door:
    def __init__(self, harness: AuthHarness, clock: FakeClock) -> None:
        self._clock = clock
        self._harness = harness
        self.saturation = EdgeSaturation(clock)
        self.metering = KnownRates()
        wrong_key_limiter = WrongKeyLimiter(0, Addresses(), clock)
        self.entrance = Entrance(
            harness.principals,
            wrong_key_limiter,
            self.saturation,
            self.metering,  # type: ignore[arg-type]
            open_prompt_memory(),
            FairBudget("A place", 10_000),
        )

    def fill(self, key_id: str) -> None:
        """The edge runs so late that it has no more room for the key."""
        for _ in range(4 * LEAST_CHATS):
            self.saturation.acquire_permit(key_id)
        while not self.saturation.is_reached:
            for _ in range(2 * LEAST_SAMPLES):
                self._clock.advance(SAMPLE_EACH_S)
                self.saturation.note_lateness(10 * LATENESS_TOLERATED_S)

    def leave_until_the_limit(self, key_id: str) -> None:
        gate = self.saturation._gate
        while gate.running > gate.limit:
            gate.release(key_id)

    def refusal(self, api_key: str) -> Reason | None:
        refusal = self.entrance.refusal(bearer(api_key))
        return None if refusal is None else refusal[0].reason

    async def known(self, *scopes: "Scope.ValueType") -> tuple[str, str]:
        """A key that the edge remembers, and its id."""
        created = await self._harness.new_key(*scopes)
        await self._harness.principals.authenticate(bearer(created.api_key))
        return created.api_key, created.key.key_id


async def test_chat_is_sent_away_at_once_where_there_is_no_room_for_it(harness: AuthHarness, clock: FakeClock) -> None:
    door = Door(harness, clock)
    api_key, key_id = await door.known()
    await harness.leased()
    assert door.refusal(api_key) is None
    door.fill(key_id)
    await harness.leased()

    assert door.refusal(api_key) is Reason.SATURATED
    assert door.entrance.refusal(bearer(api_key))[1] == RATES  # type: ignore[index]
    # What is not known must be asked for, so nothing is told at once.
    door.metering.headers = None
    assert door.refusal(api_key) is None


async def test_who_is_not_known_or_may_not_chat_is_told_that_first(harness: AuthHarness, clock: FakeClock) -> None:
    door = Door(harness, clock)
    _, key_id = await door.known()
    reader, _ = await door.known(Scope.SCOPE_USAGE)
    unknown = (await harness.new_key()).api_key
    door.fill(key_id)
    await harness.leased()

    assert [door.refusal(api_key) for api_key in (reader, unknown, "nonsense", "")] == [None] * 4


async def test_small_key_is_not_sent_away_because_of_a_greedy_one(harness: AuthHarness, clock: FakeClock) -> None:
    door = Door(harness, clock)
    greedy, greedy_id = await door.known()
    small, _ = await door.known()
    door.fill(greedy_id)
    door.leave_until_the_limit(greedy_id)
    await harness.leased()

    assert (door.refusal(greedy), door.refusal(small)) == (Reason.SATURATED, None)


@pytest.mark.parametrize("known", [RATES, None])
async def test_metering_that_is_away_is_not_waited_for_once_more_because_of_headers(
    harness: AuthHarness, clock: FakeClock, known: Headers | None
) -> None:
    door = Door(harness, clock)
    api_key, _ = await door.known()
    await harness.leased()
    door.metering.headers = known
    scope: HttpScope = {"headers": bearer(api_key)}
    assert await door.entrance.rates(scope, unavailable("Metering")) == (known or [])
    assert not door.metering.was_asked
    # Who is refused by somebody else is told what metering says.
    assert await door.entrance.rates(scope, LegatoError(Reason.SCOPE_MISSING, "It may not.")) == RATES
    assert door.metering.was_asked


async def test_in_maintenance_nobody_is_told_that_there_is_no_room(harness: AuthHarness, clock: FakeClock) -> None:
    door = Door(harness, clock)
    api_key, key_id = await door.known()
    door.fill(key_id)
    await harness.leased()
    assert door.refusal(api_key) is Reason.SATURATED
    on = pb.Maintenance(is_on=True, message="Back at noon.", retry_after_s=300)
    harness.principals.maintenance.update(pb.WatchResponse(epoch=10**6, maintenance=on))
    assert door.refusal(api_key) is None
    with pytest.raises(LegatoError, match="Back at noon") as refusal:
        door.entrance.require_service()
    # Metering may be what is being worked on.
    door.metering.headers = None
    assert await door.entrance.rates({"headers": bearer(api_key)}, refusal.value) == []
    assert not door.metering.was_asked

"""Requests that wait for a service that is away: in order, within bounds, and no longer than they may."""

import asyncio
from collections.abc import Callable

import pytest

from edge.backends.outage_wait import (
    HELD_BYTES,
    MOST_TRYING,
    OutageQueues,
    OutageWait,
    WaitLimits,
    begin_request,
    end_request,
    has_waited,
)
from edge.wire.body_reader import ClientGone
from services.chassis.errors import ACCOUNT_LOCKED, LegatoError, Reason, unavailable
from services.chassis.http.asgi import WHEN_GONE, HttpScope
from services.chassis.sentence import Sentence


class Backend:
    """A service that is away until it is back, and how it was asked."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked: list[int] = []
        self.answered: list[int] = []
        self.running = 0
        self.most_running = 0

    async def ask(self, number: int) -> int:
        self.asked.append(number)
        if self.is_away:
            raise unavailable("Metering")
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        self.answered.append(number)
        return number


class Clients:
    """Requests of several clients at one edge."""

    def __init__(self, limits: WaitLimits | None = None) -> None:
        self.waits = OutageWait(limits)
        self.queues = OutageQueues("Metering", self.waits, verifies_again=True)
        self.backend = Backend()
        self.verified: list[int] = []
        self.is_revoked = False

    def send(
        self, number: int = 0, scope: HttpScope | None = None, key: str = "", client: str = "", account_id: str = ""
    ) -> "asyncio.Task[int]":
        async def verify_again() -> None:
            self.verified.append(number)
            if self.is_revoked:
                raise LegatoError(Reason.KEY_INVALID, Sentence.verbatim("The API key is not valid."))

        async def serve() -> int:
            begin_request(scope or {}, verify_again, lambda: client)
            try:
                return await self.queues.call(lambda: self.backend.ask(number), lambda: key, account_id=account_id)
            finally:
                end_request()

        return asyncio.create_task(serve())

    async def waiting(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.waits.requests != count:
                await asyncio.sleep(0.001)


async def refusal_of(request: "asyncio.Task[int]") -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await request
    return refusal.value


async def test_request_that_needs_no_wait_is_not_counted_and_its_key_not_verified_again() -> None:
    clients = Clients()
    clients.backend.is_away = False
    assert await clients.send(7) == 7
    assert (clients.verified, sum(clients.waits.outcomes.values())) == ([], 0)
    assert not has_waited()


async def test_waiting_requests_are_served_in_order_of_arrival_and_not_all_at_once() -> None:
    clients = Clients()
    requests = [clients.send(number) for number in range(200)]
    await clients.waiting(200)
    tried = len(clients.backend.asked)
    clients.backend.is_away = False
    late = clients.send(200)
    assert await asyncio.gather(*requests, late) == [*range(201)]
    assert clients.backend.answered == [*range(201)]
    assert 1 < clients.backend.most_running <= MOST_TRYING
    # Beside the first attempt of each, only the first in the queue tried meanwhile.
    assert set(clients.backend.asked[200:tried]) <= {0}
    assert clients.waits.outcomes["served"] == 201
    assert (clients.waits.requests, clients.waits.held_bytes) == (0, 0)


async def test_service_that_is_lost_again_is_waited_for_again() -> None:
    clients = Clients()
    requests = [clients.send(number) for number in range(8)]
    await clients.waiting(8)
    clients.backend.is_away = False
    await requests[0]
    clients.backend.is_away = True
    await asyncio.sleep(0.1)
    clients.backend.is_away = False
    assert await asyncio.gather(*requests) == [*range(8)]


async def test_request_waits_no_longer_than_it_may_for_all_services_together() -> None:
    clients = Clients(WaitLimits(wait_s=0.2))
    refusal = await refusal_of(clients.send())
    assert (refusal.reason, refusal.retry_after_s) == (Reason.UNAVAILABLE, 5)
    assert clients.waits.outcomes["late"] == 1
    await clients.waiting(0)

    async def serve_twice() -> list[str]:
        refusals: list[str] = []
        begin_request({}, lambda: asyncio.sleep(0), str)
        for _ in range(2):
            try:
                await clients.queues.call(lambda: clients.backend.ask(1))
            except LegatoError as error:
                refusals.append(error.reason)
        return refusals

    async with asyncio.timeout(10):
        assert await asyncio.create_task(serve_twice()) == [Reason.UNAVAILABLE] * 2


async def test_requests_that_wait_for_one_that_hangs_all_get_their_refusal() -> None:
    clients = Clients(WaitLimits(wait_s=0.3))
    requests = [clients.send(number) for number in range(5)]
    await clients.waiting(5)

    async def hang(number: int) -> int:
        await asyncio.sleep(60)
        return number

    clients.backend.ask = hang  # type: ignore[method-assign]
    assert {(await refusal_of(request)).reason for request in requests} == {Reason.UNAVAILABLE}
    assert clients.waits.outcomes["late"] == 5


@pytest.mark.parametrize("limits", [WaitLimits(requests=2), WaitLimits(held_bytes=200)])
async def test_request_beyond_the_bounds_is_refused_at_once(limits: WaitLimits) -> None:
    clients = Clients(limits)
    waiting = [clients.send(number, {HELD_BYTES: 100}) for number in range(2)]
    await clients.waiting(2)
    refusal = await refusal_of(clients.send(2, {HELD_BYTES: 100}))
    assert "too many requests wait" in refusal.message
    assert (clients.waits.requests, clients.waits.held_bytes) == (2, 200)
    clients.backend.is_away = False
    assert await asyncio.gather(*waiting) == [0, 1]


@pytest.mark.parametrize("limits", [WaitLimits(requests=30), WaitLimits(held_bytes=3000)])
@pytest.mark.parametrize("who", ["client", "account_id"])
async def test_one_client_or_account_leaves_places_to_others(limits: WaitLimits, who: str) -> None:
    clients = Clients(limits)
    greedy = [clients.send(number, {HELD_BYTES: 100}, **{who: "greedy"}) for number in range(40)]
    await clients.waiting(20)
    others = [clients.send(number, {HELD_BYTES: 100}, **{who: f"other-{number}"}) for number in range(8)]
    await clients.waiting(28)
    clients.backend.is_away = False
    assert await asyncio.gather(*others) == [*range(8)]
    served = await asyncio.gather(*greedy, return_exceptions=True)
    assert sum(isinstance(outcome, int) for outcome in served) == 20
    assert (clients.waits.requests, clients.waits.held_bytes, clients.waits.outcomes["full"]) == (0, 0, 20)


async def test_clients_whose_address_says_nothing_are_held_to_no_share() -> None:
    clients = Clients(WaitLimits(requests=30))
    waiting = [clients.send(number) for number in range(30)]
    await clients.waiting(30)
    clients.backend.is_away = False
    assert await asyncio.gather(*waiting) == [*range(30)]


async def test_client_that_disconnects_frees_its_place() -> None:
    clients = Clients()
    told: list[Callable[[], None]] = []
    request = clients.send(1, {WHEN_GONE: told.append, HELD_BYTES: 10})
    await clients.waiting(1)
    told[0]()
    with pytest.raises(ClientGone):
        await request
    assert (clients.waits.requests, clients.waits.held_bytes, clients.waits.outcomes["gone"]) == (0, 0, 1)
    clients.backend.is_away = False
    assert await clients.send(2) == 2


async def test_disconnect_after_the_wait_is_none_of_its_business() -> None:
    clients = Clients()
    told: list[Callable[[], None]] = []
    scope: HttpScope = {WHEN_GONE: told.append}

    async def serve() -> str:
        begin_request(scope, lambda: asyncio.sleep(0), str)
        await clients.queues.call(lambda: clients.backend.ask(1))
        told[0]()
        await asyncio.sleep(0)
        return "went on"

    request = asyncio.create_task(serve())
    await clients.waiting(1)
    clients.backend.is_away = False
    assert await request == "went on"


async def test_key_is_verified_again_before_the_call_after_a_wait() -> None:
    clients = Clients()
    request = clients.send(1)
    await clients.waiting(1)
    asked = len(clients.backend.asked)
    clients.is_revoked, clients.backend.is_away = True, False
    assert (await refusal_of(request)).reason is Reason.KEY_INVALID
    assert clients.backend.answered == []
    assert len(clients.backend.asked) == asked
    assert clients.waits.outcomes["refused"] == 1


async def test_accounts_of_another_replica_do_not_wait() -> None:
    clients = Clients()
    request = clients.send(1, key="metering-1")
    await clients.waiting(1)
    clients.backend.is_away = False
    # At its first attempt, though another request waits.
    assert await clients.send(2, key="metering-2") == 2
    assert await request == 1
    assert clients.waits.outcomes["served"] == 1


async def test_locked_account_is_no_outage() -> None:
    clients = Clients()

    async def find_locked() -> int:
        raise LegatoError(
            Reason.UNAVAILABLE, Sentence.verbatim("The account is locked right now."), figures={ACCOUNT_LOCKED: 1}
        )

    with pytest.raises(LegatoError, match="locked"):
        await clients.queues.call(find_locked)
    assert clients.waits.outcomes["late"] == 0

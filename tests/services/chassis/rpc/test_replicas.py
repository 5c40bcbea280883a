import asyncio
from collections.abc import AsyncIterator

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc import replicas as replicas_module
from services.chassis.rpc.replicas import AFFINITY_SPARE_CALLS, Replicas
from services.chassis.rpc.subset import ClientPosition, Subset, ring
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.support.waiting import until


class Replica:
    def __init__(self, address: str) -> None:
        self.address = address
        self.usable = True
        self.is_leaving = False
        self.load = 0
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Replicated(Replicas[Replica]):
    """Three machines, each by its own name."""

    def __init__(self, log: Log) -> None:
        self.made: dict[str, Replica] = {}
        super().__init__("test", "unix:/a, unix:/b,unix:/c", self._make, log)

    def _make(self, address: str) -> Replica:
        return self.made.setdefault(address, Replica(address))


@pytest.fixture
async def replicas(log: Log) -> Replicated:
    replicas = Replicated(log)
    await replicas.start()
    return replicas


async def test_every_address_gets_a_replica(replicas: Replicated) -> None:
    assert set(replicas.made) == {"unix:/a", "unix:/b", "unix:/c"}
    await replicas.close()
    assert all(replica.closed for replica in replicas.made.values())


async def test_new_work_goes_to_the_least_loaded_that_is_usable(replicas: Replicated) -> None:
    replicas.made["unix:/a"].usable = False
    replicas.made["unix:/b"].load = 2
    replicas.made["unix:/c"].load = 1
    least = replicas.least_loaded()
    assert least.address == "unix:/c"
    assert replicas.least_loaded(other_than=least).address == "unix:/b"
    await replicas.close()


async def test_calls_that_belong_together_get_the_same_replica_unless_it_has_more_to_do(replicas: Replicated) -> None:
    conversations = [f"conversation {number}" for number in range(100)]
    before = {each: replicas.least_loaded(affinity=each) for each in conversations}
    assert {replica.address for replica in before.values()} == set(replicas.made)
    assert all(replicas.least_loaded(affinity=each) is replica for each, replica in before.items())
    busy = replicas.made["unix:/b"]
    busy.load = AFFINITY_SPARE_CALLS
    assert all(replicas.least_loaded(affinity=each) is replica for each, replica in before.items())
    busy.load += 1
    assert all(replicas.least_loaded(affinity=each) is not busy for each in conversations)
    await replicas.close()


async def test_conversations_of_a_replica_that_is_gone_move_and_others_stay(replicas: Replicated) -> None:
    conversations = [f"conversation {number}" for number in range(100)]
    before = {each: replicas.least_loaded(affinity=each).address for each in conversations}
    gone = replicas.made["unix:/b"]
    gone.usable, gone.is_leaving = False, True
    after = {each: replicas.least_loaded(affinity=each).address for each in conversations}
    assert gone.address not in after.values()
    assert all(after[each] == address for each, address in before.items() if address != gone.address)
    await replicas.close()


async def test_all_are_listed_with_the_usable_ones_first_and_of_those_the_least_loaded(replicas: Replicated) -> None:
    replicas.made["unix:/a"].usable = False
    replicas.made["unix:/b"].load = 2
    replicas.made["unix:/c"].load = 1
    assert [replica.address for replica in replicas.in_order()] == ["unix:/c", "unix:/b", "unix:/a"]
    await replicas.close()


async def test_account_keeps_its_replica_while_others_come_and_go(replicas: Replicated) -> None:
    accounts = [f"acct_{number}" for number in range(300)]
    before = {account: replicas.for_account(account).address for account in accounts}
    assert set(before.values()) == set(replicas.made)
    replicas.made["unix:/b"].usable = False
    after = {account: replicas.for_account(account).address for account in accounts}
    assert all(after[account] == before[account] for account in accounts if before[account] != "unix:/b")
    assert "unix:/b" not in after.values()
    await replicas.close()


async def test_those_that_leave_are_asked_only_where_there_is_no_other(replicas: Replicated) -> None:
    for replica in replicas.made.values():
        replica.usable = False
    leaving = replicas.made["unix:/a"]
    leaving.is_leaving = True
    assert replicas.least_loaded() is leaving
    assert replicas.for_account("acct_1") is leaving
    with pytest.raises(LegatoError):
        replicas.least_loaded(other_than=leaving)
    staying = replicas.made["unix:/b"]
    staying.usable, staying.load = True, 100
    assert replicas.least_loaded() is staying
    assert replicas.for_account("acct_1") is staying
    await replicas.close()


async def test_no_replica_is_unavailable(replicas: Replicated) -> None:
    for replica in replicas.made.values():
        replica.usable = False
    with pytest.raises(LegatoError) as refused:
        replicas.least_loaded()
    assert refused.value.reason is Reason.UNAVAILABLE
    with pytest.raises(LegatoError) as refused:
        replicas.for_account("acct_1")
    assert refused.value.reason is Reason.UNAVAILABLE
    await replicas.close()


async def test_host_stands_for_all_its_machines(log: Log) -> None:
    made: list[str] = []

    def make(address: str) -> Replica:
        made.append(address)
        return Replica(address)

    replicas = Replicas("test", "localhost:7001", make, log)
    async with asyncio.timeout(60):
        await replicas.start()
    assert "127.0.0.1:7001" in made
    await replicas.close()


async def test_one_that_takes_the_place_of_another_is_found_soon(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, asked = {"10.0.0.1:7001"}, 0

    async def resolve(address: str) -> set[str]:
        nonlocal asked
        asked += 1
        return set(listed)

    monkeypatch.setattr(replicas_module, "resolve", resolve)
    monkeypatch.setattr(replicas_module, "RESOLVE_SOON_S", 0.001)
    monkeypatch.setattr(replicas_module, "RESOLVE_EVERY_TURNS", 1_000_000)
    replicas = Replicas("test", "router:7001", Replica, log)
    await replicas.start()
    old = replicas.least_loaded()
    listed = {"10.0.0.2:7001"}
    await asyncio.sleep(0.05)
    assert asked == 1
    old.usable = False
    async with asyncio.timeout(60):
        while replicas.in_order()[0] is old:
            await asyncio.sleep(0.001)
    assert replicas.least_loaded().address == "10.0.0.2:7001"
    await replicas.close()
    assert old.closed


@pytest.mark.parametrize("addresses", ["router", "router:", ":7002", "router:http", "unix:/a,router:99999"])
def test_what_is_no_address_is_named_at_start(addresses: str, log: Log) -> None:
    with pytest.raises(SettingsError, match="is not an address"):
        Replicas("test", addresses, Replica, log)


async def be_first() -> ClientPosition:
    """Returns the first of as many clients as there are replicas."""
    return ClientPosition(0, 6)


class Chosen(Replicas[Replica]):
    """Three of six machines."""

    def __init__(self, log: Log) -> None:
        self.made: list[Replica] = []
        self.addresses = ring(f"unix:/{number}" for number in range(6))
        super().__init__("test", ",".join(self.addresses), self._make, log, Subset(3, be_first))

    def _make(self, address: str) -> Replica:
        self.made.append(Replica(address))
        return self.made[-1]

    def open_addresses(self) -> list[str]:
        return [address for address in self.addresses if address in {one.address for one in self.in_order()}]

    def used(self) -> set[str]:
        """Everyone to whom a chat would go."""
        first = self.least_loaded()
        return {first.address, *(one.address for one in self._in_use())}


@pytest.fixture
async def chosen(log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Chosen]:
    monkeypatch.setattr(replicas_module, "RESOLVE_SOON_S", 0.001)
    replicas = Chosen(log)
    await replicas.start()
    assert replicas.least_loaded() in replicas.made
    yield replicas
    await replicas.close()


async def test_a_client_connects_to_its_subset_alone(chosen: Chosen) -> None:
    assert chosen.open_addresses() == chosen.addresses[:3]
    assert chosen.used() == set(chosen.addresses[:3])


async def test_the_next_in_order_replaces_one_that_is_lost_at_once_until_it_is_back(chosen: Chosen) -> None:
    lost = chosen.made[1]
    lost.usable = False
    chosen.least_loaded()
    # No turn of the resolver was needed.
    assert chosen.open_addresses() == chosen.addresses[:4]
    assert chosen.used() == set(chosen.addresses) - {lost.address} - set(chosen.addresses[4:])
    lost.usable = True
    assert chosen.used() == set(chosen.addresses[:3])
    await until(lambda: chosen.open_addresses() == chosen.addresses[:3])
    assert chosen.made[3].closed


async def test_one_that_leaves_is_replaced_too_and_keeps_its_calls(chosen: Chosen) -> None:
    leaving = chosen.made[0]
    leaving.usable, leaving.is_leaving, leaving.load = False, True, 1
    assert leaving.address not in chosen.used()
    assert chosen.open_addresses() == chosen.addresses[:4]
    assert not leaving.closed


async def test_a_replacement_with_calls_is_closed_only_after_them(chosen: Chosen) -> None:
    lost = chosen.made[0]
    lost.usable = False
    chosen.least_loaded()
    replacement = chosen.made[3]
    replacement.load = 1
    lost.usable = True
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert not replacement.closed
    assert replacement.address not in chosen.used()
    replacement.load = 0
    await until(lambda: replacement.closed)


async def test_a_replacement_that_does_not_come_is_replaced_itself(chosen: Chosen) -> None:
    def make_dead(address: str) -> Replica:
        replica = Replica(address)
        replica.usable = address == chosen.addresses[5]
        return replica

    chosen._connect = make_dead
    chosen.made[0].usable = False
    await until(lambda: chosen.addresses[5] in chosen.used())
    assert len(chosen._in_use()) == 3


@pytest.mark.parametrize(
    ("addresses", "zones"),
    [("a:1;zone=x, b:2", ["x", ""]), ("unix:/a,unix:/b;zone=y", ["", "y"])],
)
def test_an_address_may_have_a_zone(addresses: str, zones: list[str]) -> None:
    assert [endpoint.zone for endpoint in replicas_module.parse_endpoints(addresses)] == zones
    assert not [endpoint for endpoint in replicas_module.parse_endpoints(addresses) if "zone" in endpoint.address]

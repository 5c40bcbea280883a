from collections import Counter

import pytest

from services.chassis.rpc.subset import Choice, ClientPosition, Subset, order_of, subset_size

MOST_CLIENTS = 50
MOST_REPLICAS = 20
SIZE = 3


def addresses(count: int) -> list[str]:
    return [f"10.0.0.{number}:7002" for number in range(1, count + 1)]


def subsets(replicas: list[str], clients: int) -> list[list[str]]:
    """The subset of each client."""
    size = subset_size(SIZE, len(replicas), clients)
    return [order_of(replicas, ClientPosition(number, clients))[:size] for number in range(clients)]


async def chosen(zones: dict[str, str], position: ClientPosition | None, *, size: int = SIZE, zone: str = "") -> Choice:
    async def find() -> ClientPosition | None:
        return position

    subset = Subset(size, find, zone)
    await subset.update_position()
    return subset.choose(zones)


@pytest.mark.parametrize("replicas", range(1, MOST_REPLICAS + 1))
def test_every_replica_has_as_many_clients_as_any_other_or_one_more(replicas: int) -> None:
    for clients in range(1, MOST_CLIENTS + 1):
        used = Counter(address for subset in subsets(addresses(replicas), clients) for address in subset)
        assert len(used) == replicas
        assert max(used.values()) - min(used.values()) <= 1


def test_clients_use_a_few_replicas_and_two_at_least() -> None:
    assert subset_size(SIZE, replicas=20, clients=20) == SIZE
    assert subset_size(1, replicas=20, clients=20) == 2
    assert subset_size(SIZE, replicas=2, clients=20) == 2
    assert subset_size(SIZE, replicas=1, clients=20) == 1
    assert subset_size(SIZE, replicas=20, clients=2) == 10


@pytest.mark.parametrize("replicas", range(4, MOST_REPLICAS + 1))
def test_a_replica_that_leaves_moves_few_others(replicas: int) -> None:
    """The same moves, backwards, are those of one that joins."""
    every = addresses(replicas)
    for gone in every:
        clients = 50
        before, after = subsets(every, clients), subsets([address for address in every if address != gone], clients)
        moved = [len(set(new) - set(old)) for old, new in zip(before, after, strict=True)]
        assert max(moved) <= 2
        # A client that loses a member needs another; about as many again move by one.
        assert sum(moved) <= clients


def test_an_edge_more_moves_a_few_members_of_each_subset() -> None:
    every = addresses(20)
    before, after = subsets(every, 20), subsets(every, 21)
    kept = [len(set(old) & set(new)) for old, new in zip(before, after, strict=False)]
    assert min(kept) >= SIZE - 1


def test_the_load_of_a_lost_replica_is_divided_among_several() -> None:
    every = addresses(20)
    orders = [order_of(every, ClientPosition(number, 20)) for number in range(20)]
    lost = orders[0][0]
    replacements = Counter(order[SIZE] for order in orders if lost in order[:SIZE])
    assert list(replacements.values()) == [1] * SIZE


async def test_without_a_known_position_all_replicas_are_used() -> None:
    choice = await chosen(dict.fromkeys(addresses(20), ""), None)
    assert (set(choice.order), choice.size) == (set(addresses(20)), 20)


async def test_zero_means_all_replicas() -> None:
    assert (await chosen(dict.fromkeys(addresses(20), ""), ClientPosition(3, 20), size=0)).size == 20


async def test_replicas_of_the_own_zone_come_first_and_others_replace_them() -> None:
    zones = {address: "ab"[number % 2] for number, address in enumerate(addresses(12))}
    choice = await chosen(zones, ClientPosition(3, 20), zone="a")
    assert choice.size == SIZE
    assert [zones[address] for address in choice.order] == ["a"] * 6 + ["b"] * 6


async def test_a_zone_with_one_replica_has_another_for_failover() -> None:
    zones = {"a:1": "a", "b:1": "b", "b:2": "b"}
    choice = await chosen(zones, ClientPosition(0, 2), zone="a")
    assert (choice.order[0], choice.size) == ("a:1", 2)


async def test_a_zone_without_replicas_uses_those_of_others() -> None:
    choice = await chosen(dict.fromkeys(addresses(5), "b"), ClientPosition(0, 9), zone="a")
    assert (len(choice.order), choice.size) == (5, SIZE)

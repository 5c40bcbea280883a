"""The division of a limit among routers, and time that jumps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import LegatoError
from services.metering.limits.model_shares import (
    KEPT_S,
    LEARNING_S,
    LocalModelShares,
    ModelShares,
    RenewedShare,
    ShareClaim,
    fair_shares,
)
from tests.support.fakes import FakeClock

MODEL = "host/model"
LIMIT = 8
DAY_S = 86_400.0


class Fleet:
    """The store of a limit of 8, and when its routers call."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.store = ModelShares(learning_since_s=self.now_s - DAY_S, called_s=self.now_s - DAY_S)
        self.sequence = 0
        # What each router holds and wants by its last call.
        self.last: dict[str, tuple[int, int]] = {}

    def call(self, router: str, held: int, wanted: int, limit: int = LIMIT) -> RenewedShare:
        self.sequence += 1
        claim = ShareClaim(MODEL, limit, held, wanted)
        [renewed] = self.store.renew(router, self.sequence, [claim], self.now_s)
        self.last[router] = max(held, renewed.places), wanted
        return renewed

    def renew(self, router: str, held: int, wanted: int, limit: int = LIMIT) -> int:
        return self.call(router, held, wanted, limit).places

    def wait(self, seconds: float, *calling: str) -> None:
        """Moves the clock, while some routers renew what they hold."""
        for _ in range(round(seconds * 2)):
            self.now_s += 0.5
            for router in calling:
                self.renew(router, *self.last[router])


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@given(st.integers(0, 50), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 30)), st.integers(0, 100))
def test_all_places_are_given_that_are_wanted_and_smaller_shares_are_raised_first(
    limit: int, wants: dict[str, int], turn: int
) -> None:
    shares = fair_shares(limit, wants, turn)
    assert sum(shares.values()) == min(limit, sum(wants.values()))
    for router, share in shares.items():
        assert 0 <= share <= wants[router]
        if share < wants[router]:
            assert max(shares.values()) <= share + 1


def test_places_that_cannot_be_divided_go_round() -> None:
    turns = [fair_shares(1, {"a": 1, "b": 1, "c": 1}, turn) for turn in range(20)]
    assert {router for shares in turns for router, share in shares.items() if share} == {"a", "b", "c"}


def test_router_that_does_not_call_any_more_gives_back_after_ten_seconds(fleet: Fleet) -> None:
    assert (fleet.renew("a", 0, 4), fleet.renew("b", 0, 8)) == (6, 2)
    fleet.wait(KEPT_S - 0.5, "b")
    assert fleet.renew("b", 2, 8) == 2
    fleet.wait(1, "b")
    assert fleet.renew("b", 2, 8) == 8


def test_router_that_has_ended_gives_back_at_once(fleet: Fleet) -> None:
    fleet.renew("a", 0, 8)
    fleet.renew("a", 0, 0)
    assert fleet.renew("b", 0, 8) == 8


def test_what_an_outage_kept_routers_from_renewing_is_not_free(fleet: Fleet) -> None:
    fleet.renew("a", 0, 6)
    fleet.wait(600)
    assert fleet.renew("b", 0, 8) == 0
    fleet.wait(1)
    assert fleet.renew("a", 6, 6) <= 6
    fleet.wait(20, "a", "b")
    assert sum(held for held, _ in fleet.last.values()) <= LIMIT


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_clock_that_is_set_back_or_forth_neither_frees_nor_locks_places(fleet: Fleet, step_s: float) -> None:
    fleet.renew("a", 0, 6)
    fleet.now_s += step_s
    assert fleet.renew("b", 0, 8) == 0
    fleet.wait(KEPT_S + 1, "b")
    assert fleet.renew("b", 0, 8) == 8


def test_lowest_limit_of_the_routers_that_call_counts(fleet: Fleet) -> None:
    fleet.renew("a", 0, 8)
    assert fleet.renew("b", 0, 8, limit=4) == 0
    assert fleet.renew("a", 8, 8) <= 4
    assert fleet.renew("b", 0, 8, limit=4) == 0
    assert fleet.renew("a", 2, 8, limit=4) == 2
    assert fleet.renew("b", 0, 8, limit=4) == 2


def test_call_that_a_later_one_has_overtaken_changes_nothing(fleet: Fleet) -> None:
    fleet.renew("a", 0, 8)
    for sequence in (fleet.sequence, fleet.sequence - 1):
        with pytest.raises(LegatoError, match="later call"):
            fleet.store.renew("a", sequence, [ShareClaim(MODEL, LIMIT, 0, 0)], fleet.now_s)
    assert fleet.renew("b", 0, 8) == 0


def test_routers_that_want_more_than_there_is_are_told_so(fleet: Fleet) -> None:
    assert not fleet.call("a", 0, 6).is_contended
    assert fleet.call("b", 0, 3).is_contended
    assert fleet.call("a", 6, 6).is_contended


async def test_new_store_gives_nothing_out_that_a_router_it_does_not_know_may_hold(clock: FakeClock) -> None:
    store = LocalModelShares(clock)

    async def renew(router: str, sequence: int, held: int) -> int:
        [renewed] = await store.renew(router, sequence, [ShareClaim(MODEL, LIMIT, held, 8)])
        return renewed.places

    assert (await renew("a", 1, 0), await renew("b", 1, 3), await renew("b", 2, 3)) == (0, 3, 3)
    clock.advance(LEARNING_S)
    assert await renew("a", 2, 0) == 4

"""The division of a limit among routers, and time that jumps."""

from hypothesis import given
from hypothesis import strategies as st

from services.metering.limits.model_shares import ModelShare, ShareClaim, ShareHolder, fair_shares, renew

SECOND_US = 1_000_000
KEPT_US = 60 * SECOND_US
START_US = 1_000_000_000_000


@given(st.integers(0, 50), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 30)), st.integers(0, 100))
def test_all_places_are_given_that_are_wanted_and_smaller_shares_are_raised_first(
    places: int, wants: dict[str, int], turn: int
) -> None:
    shares = fair_shares(places, wants, turn)
    assert sum(shares.values()) == min(places, sum(wants.values()))
    for router, share in shares.items():
        assert 0 <= share <= wants[router]
        if share < wants[router]:
            assert max(shares.values()) <= share + 1


def test_places_that_cannot_be_divided_go_round() -> None:
    wants = {"a": 1, "b": 1, "c": 1}
    assert [fair_shares(1, wants, turn) for turn in range(3)] == [
        {"a": 1, "b": 0, "c": 0},
        {"a": 0, "b": 1, "c": 0},
        {"a": 0, "b": 0, "c": 1},
    ]


class Shares:
    """A limit of 8, and when its routers call."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.rows: list[ModelShare] = []
        self.sequence = 0

    def renew(self, router: str, held: int, wanted: int, instance: str = "", limit: int = 8) -> int:
        self.sequence += 1
        holder = ShareHolder(router, instance or router, int(router == "successor"), self.sequence)
        claim = ShareClaim("host/model", limit, held, wanted)
        own, self.rows = renew(self.rows, holder, claim, self.now_us, KEPT_US)
        return own.ceiling

    def wait(self, seconds: float, *calling: str) -> None:
        """Moves the clock, while some routers renew what they hold."""
        for _ in range(round(seconds * 2)):
            self.now_us += SECOND_US // 2
            for row in [row for row in self.rows if row.holder_id in calling]:
                self.renew(row.holder_id, row.places, row.wanted)


def test_router_that_does_not_call_keeps_its_places_for_a_minute() -> None:
    shares = Shares()
    assert (shares.renew("a", 0, 4), shares.renew("b", 0, 8)) == (6, 2)
    shares.wait(59, "b")
    assert shares.renew("b", 2, 8) == 2
    shares.wait(2, "b")
    assert shares.renew("b", 2, 8) == 8


def test_successor_frees_what_its_predecessor_held_but_not_while_that_calls() -> None:
    shares = Shares()
    shares.renew("a", 0, 6, instance="host")
    assert shares.renew("successor", 0, 8, instance="host") == 0
    shares.wait(4)
    shares.renew("a", 6, 6, instance="host")
    shares.wait(2)
    assert shares.renew("successor", 0, 8, instance="host") <= 2
    shares.wait(4, "successor")
    assert shares.renew("successor", 2, 8, instance="host") == 8


def test_late_call_of_a_predecessor_frees_nothing() -> None:
    shares = Shares()
    assert shares.renew("successor", 0, 6, instance="host") == 8
    shares.wait(10)
    assert shares.renew("b", 0, 8) == 0
    assert shares.renew("a", 0, 1, instance="host") == 0
    assert shares.renew("b", 0, 8) == 0


def test_outage_of_metering_does_not_free_what_routers_could_not_renew() -> None:
    shares = Shares()
    shares.renew("a", 0, 6)
    shares.wait(600)
    assert shares.renew("b", 0, 8) == 0
    shares.wait(1)
    assert shares.renew("a", 6, 6) == 4
    shares.wait(20, "a", "b")
    assert shares.renew("b", 0, 8) == 2


def test_clock_that_is_set_back_or_forth_neither_frees_nor_locks_places() -> None:
    for step_s in (-86_400, 86_400):
        shares = Shares()
        shares.renew("a", 0, 6)
        shares.now_us += step_s * SECOND_US
        assert shares.renew("b", 0, 8) == 0
        assert shares.renew("a", 6, 6) == 4
        shares.wait(61, "b")
        assert shares.renew("b", 0, 8) == 8, step_s


def test_lowest_limit_of_the_routers_that_call_counts() -> None:
    shares = Shares()
    shares.renew("a", 0, 8)
    assert shares.renew("b", 0, 8, limit=4) == 0
    assert shares.renew("a", 8, 8) <= 4
    assert shares.renew("b", 0, 8, limit=4) == 0
    assert shares.renew("a", 2, 8, limit=4) == 2
    assert shares.renew("b", 0, 8, limit=4) == 2

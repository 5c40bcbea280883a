"""The models of several routers: counts of all of them together, and where they differ."""

import pytest

from console.pages.operator.figures import Figure
from console.pages.operator.model_table import ModelTable, RouterRoutes, table_of
from legato_protos.router.v1 import router_pb2 as pb

CLOSED, OPEN, HALF_OPEN = pb.BREAKER_STATE_CLOSED, pb.BREAKER_STATE_OPEN, pb.BREAKER_STATE_HALF_OPEN
MAIN = "model forte 1 maple large 1"


def model(
    name: str = "large", state: int = CLOSED, tier: int = 1, class_id: str = "forte", **known: float
) -> pb.Target:
    target = pb.Target(class_id=class_id, provider="maple", model_name=name, tier=tier, weight=1)
    target.breaker_state = state  # type: ignore[assignment]
    for field, value in ({"recent_calls": 0, "recent_failures": 0} | known).items():
        setattr(target, field, value)
    return target


def figures_of(*routers: list[pb.Target]) -> dict[str, Figure]:
    table = table_of([RouterRoutes(f"router-{number}", each) for number, each in enumerate(routers, start=1)])
    return dict(figure for row in table.rows for figure in row.figures)


def places_in(table: ModelTable) -> list[tuple[str, list[tuple[int, str]]]]:
    return [(class_id, [(row.target.tier, row.target.model_name) for row in rows]) for class_id, rows in table.classes]


def test_counts_and_chats_are_added_over_routers() -> None:
    figures = figures_of(
        [model(recent_calls=900, recent_failures=9, attempts=5_000, failures=50, running=3, limit=8)],
        [model(recent_calls=100, recent_failures=1, attempts=1_000, failures=10, running=4, limit=8)],
    )
    assert figures[f"{MAIN} recent"] == ("10 of 1,000 (1.0\N{NO-BREAK SPACE}%)", "")
    assert figures[f"{MAIN} counted"].text == "60 of 6,000 (1.0\N{NO-BREAK SPACE}%)"
    assert figures[f"{MAIN} running"] == ("7 of 16", "")
    assert figures[f"{MAIN} state"] == ("Healthy", "good")
    assert figures[f"{MAIN} differences"].text == ""


def test_model_without_a_limit_somewhere_has_none_and_one_that_is_nearly_full_is_marked() -> None:
    assert figures_of([model(running=3, limit=8)], [model(running=4)])[f"{MAIN} running"] == ("7", "")
    assert figures_of([model(running=8, limit=8)])[f"{MAIN} running"] == ("8 of 8", "warn")


@pytest.mark.parametrize(
    ("first", "second", "state", "differences"),
    [
        (model(state=OPEN), model(state=OPEN), ("Failing", "bad"), ""),
        (
            model(state=OPEN, recent_calls=9, recent_failures=9),
            model(recent_calls=500),
            ("Failing", "bad"),
            "router-1: Failing",
        ),
        (model(state=HALF_OPEN), model(state=OPEN), ("Failing", "bad"), "router-1: Recovering, router-2: Failing"),
        (
            model(recent_calls=50),
            model(recent_calls=10, recent_failures=9),
            ("Healthy", "good"),
            "router-2: Fails often",
        ),
        (model(recent_calls=9), model(), ("Healthy", "good"), ""),
        (model(), model(), ("Not called", ""), ""),
        (model(state=pb.BREAKER_STATE_UNSPECIFIED), model(), ("Not known", "warn"), "router-1: Not known"),
    ],
)
def test_state_is_that_of_all_routers_and_names_those_in_trouble(
    first: pb.Target, second: pb.Target, state: tuple[str, str], differences: str
) -> None:
    figures = figures_of([first], [second])
    assert figures[f"{MAIN} state"] == state
    assert figures[f"{MAIN} differences"].text == differences


def test_failures_before_the_last_five_minutes_do_not_make_a_model_fail_often() -> None:
    assert figures_of([model(recent_calls=20, attempts=100, failures=90)])[f"{MAIN} state"][0] == "Healthy"
    assert figures_of([model(recent_calls=20, recent_failures=4)])[f"{MAIN} state"][0] == "Fails often"


def test_models_of_a_router_that_does_not_count_five_minutes_are_judged_by_all_counts() -> None:
    old = model(attempts=100, failures=90)
    old.ClearField("recent_calls")
    old.ClearField("recent_failures")
    table = table_of([RouterRoutes("router-1", [old]), RouterRoutes("router-2", [model(recent_calls=5)])])
    assert not table.has_recent_counts
    figures = dict(table.rows[0].figures)
    assert figures[f"{MAIN} recent"].text == "\N{EN DASH}"
    assert figures[f"{MAIN} state"].text == "Fails often"


def test_median_times_are_shown_from_the_fastest_router_to_the_slowest() -> None:
    for medians_s, shown in (((), "\N{EN DASH}"), ((0.25, 0.25), "250 ms"), ((0.4, 0.25, 0.3), "250\N{EN DASH}400 ms")):
        routers = [[model(median_latency_s=median_s)] for median_s in medians_s] or [[model()]]
        assert figures_of(*routers)[f"{MAIN} latency"].text == shown


def test_routers_with_different_routes_have_each_model_in_its_place_once() -> None:
    first = RouterRoutes("router-1", [model("new", tier=0), model(), model("spare", tier=2), model(class_id="mezzo")])
    second = RouterRoutes("router-2", [model(), model("other"), model("spare", tier=2)])
    table = table_of([first, second])
    assert places_in(table) == [
        ("forte", [(0, "new"), (1, "large"), (1, "other"), (2, "spare")]),
        ("mezzo", [(1, "large")]),
    ]
    partial = {row.target.model_name: row.addresses for row in table.classes[0][1] if row.is_partial}
    assert partial == {"new": "router-1", "other": "router-2"}


def test_tier_that_has_a_model_twice_shows_it_twice() -> None:
    table = table_of([RouterRoutes("router", [model(limit=4), model(limit=8)])])
    assert [row.target.limit for row in table.rows] == [4, 8]
    assert [row.shares_its_tier for row in table.rows] == [True, True]

"""Which of two models fails more often, and how soon each begins to answer."""

import pytest

from legato_protos.router.v1.router_pb2 import Distribution, ModelOutcomes
from services.rules.model_comparison import OutcomeSum, compare, sum_outcomes


def outcomes_of(model_name: str, calls: int, failures: int = 0, **fields: object) -> ModelOutcomes:
    first_token_s = Distribution(bounds=[0.5, 1, 2], counts=[calls - failures, 0, 0, 0])
    return ModelOutcomes(
        provider="host",
        model_name=model_name,
        calls=calls,
        failures=failures,
        first_token_s=first_token_s,
        **fields,  # type: ignore[arg-type]
    )


def test_outcomes_of_a_model_are_summed_over_routers_and_roles() -> None:
    told = [
        outcomes_of("new", 10, 2, errors={"cut": 2}, tool_calls=4, valid_tool_calls=3),
        outcomes_of("new", 30, 0, errors={"cut": 1, "busy": 3}, tool_calls=4, valid_tool_calls=4),
        outcomes_of("old", 500),
    ]
    total = sum_outcomes("new", told)
    assert (total.calls, total.failures, total.failure_share) == (40, 2, 0.05)
    assert (total.errors, total.valid_call_share) == ({"cut": 3, "busy": 3}, 0.875)
    assert list(total.first_token_s.counts) == [38, 0, 0, 0]
    assert sum_outcomes("host/new", told).calls == 40
    assert sum_outcomes("elsewhere/new", told).calls == 0


def test_times_to_the_first_token_are_read_from_their_distribution() -> None:
    waited = OutcomeSum("new", first_token_s=Distribution(bounds=[0.5, 1, 2], counts=[0, 50, 40, 10]))
    assert waited.first_token_at_s(0.5) == 1
    assert waited.first_token_at_s(0.25) == 0.75
    assert waited.first_token_at_s(0.9) == 2
    # Beyond the last bound.
    assert waited.first_token_at_s(0.95) == 2
    assert OutcomeSum("new").first_token_at_s(0.5) is None


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((9870, 30), (512, 21), "new fails more often: 4.1 % of 512 against 0.3 % of 9,870."),
        ((512, 21), (9870, 30), "old fails more often: 4.1 % of 512 against 0.3 % of 9,870."),
        ((1000, 10), (100, 1), "Neither fails clearly more often: 1.0 % of 1,000 against 1.0 % of 100."),
        ((1000, 10), (100, 3), "Neither fails clearly more often: 1.0 % of 1,000 against 3.0 % of 100."),
        ((10_000, 0), (20, 2), "Neither fails clearly more often: 0.0 % of 10,000 against 10.0 % of 20."),
        ((50, 0), (50, 0), "Neither fails clearly more often: 0.0 % of 50 against 0.0 % of 50."),
        ((50, 50), (50, 50), "Neither fails clearly more often: 100.0 % of 50 against 100.0 % of 50."),
        ((1000, 0), (19, 19), "Too few calls to compare: new has 19, and 20 are needed."),
    ],
)
def test_verdict_names_the_model_that_fails_more_often_unless_it_may_be_chance(
    old: tuple[int, int], new: tuple[int, int], verdict: str
) -> None:
    told = [outcomes_of("old", *old), outcomes_of("new", *new)]
    assert str(compare(sum_outcomes("old", told), sum_outcomes("new", told))) == verdict

from legato_protos.type.v1.usage_pb2 import Usage
from services.router.models.spending import KINDS, Spending, describe_call
from services.router.providers.base import ProviderUsage
from services.router.routes.target import ProviderCost, Target

# Of these, 12.5 nano-dollars a token are no whole number.
COST = ProviderCost(
    input_nanos=1_000_000_000,
    cached_input_nanos=12_500_000,
    output_nanos=5_000_000_000,
    cache_write_nanos=1_250_000_000,
    cache_write_1h_nanos=2_000_000_000,
)


def test_each_token_is_counted_once_and_charged_by_its_kind() -> None:
    spending = Spending(COST)
    spending.add(Usage(prompt_tokens=1_000, cached_tokens=601, completion_tokens=7), ProviderUsage(1_000, 7, 601, 300))
    assert list(spending.tokens.values()) == [99, 601, 300, 0, 7]
    assert [spending.cost_nanos(kind) for kind in KINDS] == [99_000, 7_512.5, 375_000, 0, 35_000]
    # Two halves are one: nothing was rounded.
    spending.add(Usage(prompt_tokens=10, cached_tokens=1), ProviderUsage(10, 0, 1, 9, 5))
    assert [spending.cost_nanos(kind) for kind in KINDS] == [99_000, 7_525, 380_000, 10_000, 35_000]


def test_counts_that_cannot_be_do_not_make_a_prompt_longer() -> None:
    spending = Spending(COST)
    spending.add(Usage(prompt_tokens=10, cached_tokens=4), ProviderUsage(10, 0, 4, 100, 200))
    assert list(spending.tokens.values()) == [0, 4, 0, 6, 0]


def test_answer_without_usage_is_charged_as_it_was_counted_and_nothing_without_a_cost() -> None:
    spending = Spending()
    spending.add(Usage(prompt_tokens=10, completion_tokens=3), None)
    assert list(spending.tokens.values()) == [10, 0, 0, 0, 3]
    assert not any(map(spending.cost_nanos, KINDS))


def test_call_is_described_by_what_its_provider_said_and_costs_what_is_plausible() -> None:
    target = Target("acme", "large", 8_192, 4_096, cost=COST)
    counted = Usage(prompt_tokens=1_000, cached_tokens=1, completion_tokens=7)
    said = ProviderUsage(1_000, 900_000, 1, 300, reasoning_tokens=8)
    call = describe_call(target, counted, ProviderUsage(1_000, None, 1, 300), said)
    assert (call.provider, call.model_name) == ("acme", "large")
    assert call.usage == Usage(
        prompt_tokens=1_000, cached_tokens=1, completion_tokens=900_000, cache_write_tokens=300, reasoning_tokens=8
    )
    # 699 tokens for 1,000 nanos, one for 12.5, 300 for 1,250 and 7 for 5,000: rounded up once.
    assert call.cost_nanos == 699_000 + 13 + 375_000 + 35_000


def test_cost_of_a_call_is_unknown_and_not_nothing_where_the_routes_do_not_state_it() -> None:
    call = describe_call(Target("acme", "large", 8_192, 4_096), Usage(prompt_tokens=10, completion_tokens=3))
    assert not call.HasField("cost_nanos")
    assert call.usage == Usage(prompt_tokens=10, completion_tokens=3)

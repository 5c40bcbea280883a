from services.metering.credit.model_calls import ModelSums
from services.rules.margin import known_cost_nanos, margin_nanos


def test_margin_is_of_what_is_known() -> None:
    sums = ModelSums(charged_nanos=100, costed_nanos=70, calls=3, uncosted_calls=1, cost_nanos=90)
    assert (known_cost_nanos(sums), margin_nanos(sums)) == (90, -20)


def test_cost_of_calls_that_is_not_known_is_not_nothing() -> None:
    for sums in (ModelSums(charged_nanos=100), ModelSums(calls=2, uncosted_calls=2)):
        assert (known_cost_nanos(sums), margin_nanos(sums)) == (None, None)
    assert known_cost_nanos(ModelSums(calls=1)) == 0

from legato_protos.metering.v1.reports_pb2 import ReportSums
from legato_protos.type.v1.usage_pb2 import Usage
from services.rules.margin import known_cost_nanos, margin_nanos, provider_counts


def test_margin_is_of_what_is_known() -> None:
    sums = ReportSums(charged_nanos=100, costed_nanos=70, calls=3, uncosted_calls=1, cost_nanos=90)
    assert (known_cost_nanos(sums), margin_nanos(sums)) == (90, -20)


def test_cost_of_calls_that_is_not_known_is_not_nothing() -> None:
    for sums in (ReportSums(charged_nanos=100), ReportSums(calls=2, uncosted_calls=2)):
        assert (known_cost_nanos(sums), margin_nanos(sums)) == (None, None)
    assert known_cost_nanos(ReportSums(calls=1)) == 0


def test_counts_of_providers_are_named_as_in_a_file() -> None:
    told = Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=7)
    counts = {"told_prompt_tokens": 9, "told_cached_tokens": 4, "told_completion_tokens": 7}
    assert {name: count for name, count in provider_counts(ReportSums(told_usage=told)).items() if count} == counts

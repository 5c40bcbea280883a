"""The ledger and messages share the rule; its sums are in tests/services/metering/credit/test_prices.py."""

from legato_protos.metering.v1.metering_pb2 import Price
from legato_protos.type.v1.usage_pb2 import Usage
from services.metering.credit import prices
from services.rules import usage
from services.rules.cost import cost_nanos


def test_messages_cost_what_the_ledger_charges_for_the_same_counts() -> None:
    per_million = {
        "input_nanos_per_million": 1_070_000_001,
        "cached_input_nanos_per_million": 107_000_000,
        "output_nanos_per_million": 3_450_000_000,
    }
    counts = {"prompt_tokens": 1_003, "cached_tokens": 512, "completion_tokens": 7}
    charged_nanos = prices.Price(**per_million).cost_nanos(usage.Usage(**counts))
    assert cost_nanos(Price(**per_million), Usage(**counts)) == charged_nanos

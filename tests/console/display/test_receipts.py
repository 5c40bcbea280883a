"""What receipts say, and their arithmetic."""

from console.display.receipts import arithmetic_of, end_of
from legato_protos.metering.v1 import metering_pb2
from legato_protos.metering.v1.statements_pb2 import RequestReceipt
from legato_protos.type.v1.usage_pb2 import Usage


def test_a_cost_is_rounded_up_once() -> None:
    usage = Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=1)
    price = metering_pb2.Price(
        input_nanos_per_million=400_000, cached_input_nanos_per_million=100_000, output_nanos_per_million=100_001
    )
    receipt = RequestReceipt(usage=usage, price=price, cost_nanos=2)
    arithmetic = arithmetic_of(receipt)
    assert arithmetic is not None
    assert (arithmetic.product, arithmetic.nanos, arithmetic.agrees) == (1_000_001, 2, True)
    receipt.cost_nanos = 3
    assert not (arithmetic_of(receipt) or arithmetic).agrees


def test_every_end_has_words() -> None:
    for end in metering_pb2.End.values():
        for state in metering_pb2.RequestState.values():
            assert all(text for text in end_of(RequestReceipt(end=end, state=state))[::2])

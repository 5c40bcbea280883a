import json

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.router.v1 import router_pb2
from tests.cli.played import play


def price_of(output_nanos: int) -> metering_pb2.Price:
    return metering_pb2.Price(output_nanos_per_million=output_nanos)


def test_prices_are_the_current_and_the_scheduled_ones_unless_all_are_asked_for() -> None:
    versions = [
        statements_pb2.PriceVersion(
            version=version,
            start_time=Timestamp(seconds=version),
            prices=[
                statements_pb2.ClassPrice(class_id="mezzo", price=metering_pb2.Price(output_nanos_per_million=nanos))
            ],
        )
        for version, nanos in ((3, 220_000_000), (2, 210_000_001), (1, 200_000_000))
    ]
    response = statements_pb2.ListPricesResponse(versions=versions, current_version=2)
    listing = ("metering", "StatementService.ListPrices", response)
    [coming, current] = json.loads(play(listing).run("prices", "--json").stdout)
    assert (current["state"], current["version"], current["output_usd"]) == ("current", 2, "0.210000001")
    assert (coming["state"], coming["version"]) == ("scheduled", 3)
    states = [row["state"] for row in json.loads(play(listing).run("prices", "--all", "--json").stdout)]
    assert states == ["scheduled", "current", "past"]


def test_a_class_that_earns_less_than_its_provider_charges_is_shown() -> None:
    priced = statements_pb2.ClassPrice(
        class_id="mezzo",
        price=metering_pb2.Price(
            input_nanos_per_million=100, cached_input_nanos_per_million=20, output_nanos_per_million=200
        ),
    )
    version = statements_pb2.PriceVersion(version=1, prices=[priced])
    dear, unknown = (
        router_pb2.Target(class_id="mezzo", provider=name, model_name="m", cost=cost)
        for name, cost in (
            (
                "dear",
                router_pb2.ProviderCost(input_nanos=50, cached_input_nanos=10, output_nanos=190, cache_write_nanos=105),
            ),
            ("unknown", None),
        )
    )
    far_end = play(
        (
            "metering",
            "StatementService.ListPrices",
            statements_pb2.ListPricesResponse(versions=[version], current_version=1),
        ),
        ("router", "RouteAdminService.ListTargets", router_pb2.ListTargetsResponse(targets=[dear, unknown])),
    )
    rows = json.loads(far_end.run("prices", "--margins", "--json").stdout)
    # What is written to a cache is sold as ordinary input.
    assert [rows[0][name] for name in ("input", "cached_input", "cache_write", "output", "below_cost")] == [
        "50.0%",
        "50.0%",
        "-5.0%",
        "5.0%",
        True,
    ]
    assert rows[1]["below_cost"] is None

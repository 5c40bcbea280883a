"""`legato prices`."""

from collections.abc import Iterable, Iterator

import click

from cli.command import HelpLine, Invocation, command
from cli.connection import call_service
from cli.descriptions import rfc3339
from legato_protos.metering.v1.statements_pb2 import ListPricesRequest, PriceVersion
from legato_protos.router.v1.router_pb2 import ListTargetsRequest, Target
from services.chassis.money import format_usd

COLUMNS = ["version", "state", "since", "class", "input_usd", "cached_input_usd", "output_usd"]
MARGIN_COLUMNS = ["class", "provider", "model", "input", "cached_input", "cache_write", "output", "below_cost"]
KINDS = ("input", "cached_input", "output")
# What providers charge for, and the price that it is sold at.
PRICES = {"input": "input", "cached_input": "cached_input", "cache_write": "input", "output": "output"}

HELP = HelpLine(160, "Show the prices.")


@command()
@click.option("--all", "all_versions", is_flag=True, help="Show earlier versions, too.")
@click.option(
    "--margins", is_flag=True, help="Compare the prices with what providers charge (`cost` of a model in the routes)."
)
def prices(invocation: Invocation, all_versions: bool, margins: bool) -> None:
    """Show what a million tokens cost, in dollars, now and as scheduled."""
    listed = call_service(invocation.services.statements.ListPrices, ListPricesRequest())
    [current] = [version for version in listed.versions if version.version == listed.current_version]
    if margins:
        # All routers have the same routes.
        stub = next(iter(invocation.services.routers.values()))
        targets = call_service(stub.ListTargets, ListTargetsRequest()).targets
        invocation.show_list(list(describe_margins(current, targets)), MARGIN_COLUMNS)
        return
    shown = [
        {
            "version": version.version,
            "state": state,
            "since": rfc3339(version.start_time),
            "class": priced.class_id,
            **{f"{kind}_usd": format_usd(getattr(priced.price, f"{kind}_nanos_per_million")) for kind in KINDS},
        }
        for version in listed.versions
        if (state := state_of(version, current)) != "past" or all_versions
        for priced in version.prices
    ]
    invocation.show_list(shown, COLUMNS)


def state_of(version: PriceVersion, current: PriceVersion) -> str:
    """Returns the state of a version: current, scheduled or past."""
    is_later = version.start_time.ToMicroseconds() > current.start_time.ToMicroseconds()
    return "current" if version.version == current.version else "scheduled" if is_later else "past"


def describe_margins(version: PriceVersion, targets: Iterable[Target]) -> Iterator[dict[str, object]]:
    """Yields a row for each model: how much of each price is left after what the provider charges."""
    prices = {priced.class_id: priced.price for priced in version.prices}
    for target in targets:
        price, cost = prices.get(target.class_id), target.cost
        row: dict[str, object] = {"class": target.class_id, "provider": target.provider, "model": target.model_name}
        if price is None or not target.HasField("cost"):
            # The routes do not state what it costs.
            yield {**row, **dict.fromkeys(PRICES), "below_cost": None}
            continue
        earned: dict[str, int] = {kind: getattr(price, f"{sold}_nanos_per_million") for kind, sold in PRICES.items()}
        paid: dict[str, int] = {kind: getattr(cost, f"{kind}_nanos") for kind in PRICES}
        yield {
            **row,
            **{kind: _margin(earned[kind], paid[kind]) for kind in PRICES},
            "below_cost": any(earned[kind] < paid[kind] for kind in PRICES),
        }


def _margin(earned_nanos: int, paid_nanos: int) -> str | None:
    return None if not earned_nanos else f"{(earned_nanos - paid_nanos) / earned_nanos:.1%}"

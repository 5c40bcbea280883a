"""`legato prices`."""

import click

from cli.connection import call_service
from cli.options import Invocation, takes_invocation
from cli.output import rfc3339_of
from protos.metering.v1.statements_pb2 import ListPricesRequest
from services.chassis.money import format_usd

COLUMNS = ["version", "since", "class", "input_usd", "cached_input_usd", "output_usd"]


@click.command()
@click.option("--all", "all_versions", is_flag=True, help="Show earlier versions, too.")
@takes_invocation
def prices(invocation: Invocation, all_versions: bool) -> None:
    """Show what a million tokens cost, in dollars."""
    versions = call_service(invocation.services.statements.ListPrices, ListPricesRequest()).versions
    shown = [
        {
            "version": version.version,
            "since": rfc3339_of(version.start_time),
            "class": priced.class_id,
            "input_usd": format_usd(priced.price.input_nanos_per_million),
            "cached_input_usd": format_usd(priced.price.cached_input_nanos_per_million),
            "output_usd": format_usd(priced.price.output_nanos_per_million),
        }
        for version in (versions if all_versions else versions[:1])
        for priced in version.prices
    ]
    invocation.show_list(shown, COLUMNS)

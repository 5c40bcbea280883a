"""`legato version`."""

from importlib.metadata import version as version_of

import click

from cli.options import Invocation, takes_invocation
from cli.output import show_json


@click.command()
@takes_invocation
def version(invocation: Invocation) -> None:
    """Print the version."""
    number = version_of("legato")
    show_json({"version": number}) if invocation.json else click.echo(f"legato {number}")

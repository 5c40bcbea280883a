"""`legato version`."""

from importlib.metadata import version as version_of

from cli.command import HelpLine, Invocation, command

HELP = HelpLine(240, "Print the version.")


@command()
def version(invocation: Invocation) -> None:
    """Print the version."""
    number = version_of("legato")
    invocation.report(f"legato {number}", {"version": number})

"""`legato certs`: the certificates by which processes authenticate each other on TCP."""

from datetime import UTC, datetime
from pathlib import Path

import click

from cli.command import HelpLine, Invocation, command_group

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365

_folder_option = click.option(
    "--folder", type=click.Path(path_type=Path), help="The certificates' folder.  [default: certs in the data folder]"
)

HELP = HelpLine(190, "Create certificates for services on TCP.")
certs = command_group(
    "certs",
    """Create a certificate authority, and certificates for the processes and programs that use TCP.

    The files are for LEGATO_TLS_CA (ca.pem), LEGATO_TLS_CERT (NAME.pem) and LEGATO_TLS_KEY (NAME.key).
    """,
)


@certs.command()
@_folder_option
@click.option("--days", type=click.IntRange(min=1), default=AUTHORITY_DAYS, show_default=True)
@click.option(
    "--again", is_flag=True, help="Replace the authority. The old one stays trusted until you remove it from ca.pem."
)
def init(invocation: Invocation, folder: Path | None, days: int, again: bool) -> None:
    """Create the authority, unless there is one."""
    from cli.authority import AUTHORITY, make_authority

    path = _folder(invocation, folder) / f"{AUTHORITY}.pem"
    is_new = again or not path.exists()
    if is_new:
        make_authority(path.parent, days)
    invocation.show({"authority": str(path), "made": is_new})


@certs.command()
@_folder_option
@click.option("--host", "hosts", multiple=True, help="Another host name or address of the service; repeat for several.")
@click.option("--days", type=click.IntRange(min=1), default=CERTIFICATE_DAYS, show_default=True)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def issue(
    invocation: Invocation, names: tuple[str, ...], folder: Path | None, hosts: tuple[str, ...], days: int
) -> None:
    """Issue certificates: for edge, auth, router, metering, admin (these commands), or caller/NAME, a program of yours.

    Existing ones of the same name are replaced; running processes reload them.
    """
    from cli.authority import NoAuthority, check_name
    from cli.authority import issue as issue_one

    home = _folder(invocation, folder)
    try:
        paths = [issue_one(home, name, hosts, days) for name in map(check_name, names)]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except NoAuthority:
        raise click.ClickException(f"there is no authority in {home}: create one with `legato certs init`") from None
    things = [
        {"name": name, "certificate": str(path), "key": str(path.with_suffix(".key"))}
        for name, path in zip(names, paths, strict=True)
    ]
    invocation.show_list(things, ["name", "certificate", "key"])


@certs.command()
@_folder_option
def show(invocation: Invocation, folder: Path | None) -> None:
    """List the certificates and when they expire."""
    from cli.authority import read_certificate

    columns, things = ["file", "identity", "hosts", "expires", "days_left"], []
    for path in sorted(_folder(invocation, folder).glob("*.pem")):
        name, hosts, expires_at = read_certificate(path)
        days_left = (expires_at - datetime.now(UTC)).days
        shown = (path.name, name, hosts, expires_at.isoformat(timespec="seconds"), days_left)
        things.append(dict(zip(columns, shown, strict=True)))
    invocation.show_list(things, columns)


def _folder(invocation: Invocation, given: Path | None) -> Path:
    return given or invocation.data / "certs"

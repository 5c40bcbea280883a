"""`legato migrate`: what an init container runs before its service, where a migration may take longer than a start."""

import functools
from pathlib import Path

import click
import msgspec

from cli.command import HelpLine, Invocation, command
from cli.settings import SettingsWrong, read_settings
from cli.supervision.completeness import require_complete
from services.chassis.errors import LegatoError
from services.chassis.settings import PostgresAddress, SettingsError
from services.rules.residency import DataStore, keep_in_canada

_SERVICES = Path(__file__).parents[3] / "services"
# The scripts of each service that has a schema.
FOLDERS = {folder.parent.name: folder for folder in sorted(_SERVICES.glob("*/migrations"))}


class MigrateSettings(msgspec.Struct, frozen=True, kw_only=True):
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""

    @property
    def stores(self) -> list[DataStore]:
        return [DataStore("DATA", self.data_region), DataStore("DATABASE", self.database_region, self.database_url)]

    def check(self) -> None:
        keep_in_canada(self.stores)


COLUMNS = ["service", "revision", "newest", "migrated_by"]

HELP = HelpLine(230, "Migrate the databases.")


@command()
@click.argument("service", nargs=-1, type=click.Choice(list(FOLDERS)))
@click.option("--show", is_flag=True, help="Only show the version of each schema.")
def migrate(invocation: Invocation, service: tuple[str, ...], show: bool) -> None:
    """Migrate the databases of the named services, or of all, before services of a new version start.

    Several may run at the same time: they take turns, and who comes later finds nothing to do."""
    from services.chassis.database.database import open_database
    from services.chassis.database.schema_version import revisions_of

    try:
        settings = read_settings(MigrateSettings)
        require_complete(invocation.data, settings.database_url, peppers_given=True)
        found: list[dict[str, str | None]] = []
        for name in service or FOLDERS:
            database = open_database(name, settings.database_url, invocation.data)
            try:
                if not show:
                    database.migrate(FOLDERS[name], on_wait=functools.partial(_report_wait, name))
                version = database.read_version()
            finally:
                database.close()
            known = (None, None) if version is None else (version.revision, version.release)
            row = (name, known[0], revisions_of(FOLDERS[name])[-1], known[1])
            found.append(dict(zip(COLUMNS, row, strict=True)))
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
    except LegatoError as error:
        raise click.ClickException(" ".join(getattr(error, "__notes__", [])) or error.message) from None
    if show:
        invocation.show_list(found, COLUMNS)
    else:
        invocation.show({"migrated": [each["service"] for each in found]})


def _report_wait(service: str, reason: str) -> None:
    click.echo(f"waiting for the schema {service}: {reason}", err=True)

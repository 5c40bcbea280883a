"""`legato migrate`: for deployments whose services do not migrate at start (LEGATO_MIGRATE_AT_START)."""

from pathlib import Path

import click
import msgspec

from cli.command import Invocation, command
from cli.settings import SettingsWrong, read_settings
from cli.supervision.completeness import require_complete
from services.chassis.errors import LegatoError
from services.chassis.settings import PostgresAddress, SettingsError
from services.rules.residency import DataStore, keep_in_canada

SERVICES = Path(__file__).parents[3] / "services"


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


@command()
@click.option("--show", is_flag=True, help="Only show the version of each schema.")
def migrate(invocation: Invocation, show: bool) -> None:
    """Migrate every service's database, once, before services of a new version start."""
    from services.chassis.database.database import open_database
    from services.chassis.database.schema_version import revisions_of

    try:
        settings = read_settings(MigrateSettings)
        require_complete(invocation.data, settings.database_url, peppers_given=True)
        found: list[dict[str, str | None]] = []
        for folder in sorted(SERVICES.glob("*/migrations")):
            service = folder.parent.name
            database = open_database(service, settings.database_url, invocation.data)
            try:
                if not show:
                    database.migrate(folder)
                version = database.read_version()
            finally:
                database.close()
            known = (None, None) if version is None else (version.revision, version.release)
            found.append(dict(zip(COLUMNS, (service, known[0], revisions_of(folder)[-1], known[1]), strict=True)))
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
    except LegatoError as error:
        raise click.ClickException(" ".join(getattr(error, "__notes__", [])) or error.message) from None
    if show:
        invocation.show_list(found, COLUMNS)
    else:
        invocation.show({"migrated": [each["service"] for each in found]})

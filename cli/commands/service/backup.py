"""`legato backup`."""

from datetime import UTC, datetime
from pathlib import Path

import click

from cli.backups.settings import BackupSettings
from cli.command import HelpLine, Invocation, command
from cli.settings import SettingsWrong, read_settings
from services.chassis.errors import LegatoError
from services.chassis.money import format_usd
from services.chassis.settings import SettingsError

HELP = HelpLine(210, "Back up all stores while the service runs.")


@command()
@click.argument("target", metavar="DIR|URL")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Then delete all backups there but the newest N.")
def backup(invocation: Invocation, target: str, keep: int | None) -> None:
    """Back up accounts, keys, the ledger and what accounts store, while the service runs, below a folder or a bucket's
    URL."""
    from cli.backups.backing_up import BackupMaker
    from cli.backups.catalog import Catalog
    from services.chassis.object_store import open_object_store

    settings = read_settings(BackupSettings)
    try:
        settings.check_target(target)
        catalog = Catalog(open_object_store(target), target)
        maker = BackupMaker(catalog, settings, invocation.data, _scratch_of(target))
        now = datetime.now(UTC)
        name, manifest = maker.make(now)
        removed = catalog.prune(keep, now) if keep else []
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
    except LegatoError as error:
        raise click.ClickException(" ".join(getattr(error, "__notes__", [])) or error.message) from None
    totals = manifest.totals
    invocation.show(
        {
            "backup": name,
            "store": manifest.store,
            "bytes": sum(file.size_bytes for file in manifest.files),
            "accounts": totals.accounts,
            "keys": totals.keys,
            "ledger_entries": totals.ledger_entries,
            "balance": format_usd(totals.balance_nanos),
            "needs": [f"{variable} {entries}" for variable, entries in manifest.secrets.items()],
            "deleted": removed,
        }
    )


def _scratch_of(target: str) -> Path | None:
    """Returns a folder with room for the files: the target, unless that is a bucket."""
    if "://" in target:
        return None
    folder = Path(target)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder

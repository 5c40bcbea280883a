"""Names the secrets that stores need by fingerprints, which reveal nothing about them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.backups.manifest import BackupUnusable
from cli.backups.settings import BackupSettings
from cli.supervision.environment import CREDENTIAL_KEY_VARIABLE, GROUNDING_KEY_VARIABLE, PEPPERS_VARIABLE
from services.chassis.versioned_secrets import fingerprints_of, parse_versioned_secrets

if TYPE_CHECKING:
    from services.auth.core.store import Connection

# Each with its file in the data folder of `legato up`.
SECRETS: Final = {
    PEPPERS_VARIABLE: "key-peppers",
    CREDENTIAL_KEY_VARIABLE: "credential-key",
    GROUNDING_KEY_VARIABLE: "grounding-key",
}


def given_secrets(settings: BackupSettings, data: Path) -> dict[str, str]:
    """Returns the secrets that are set, or kept in the data folder."""
    given = {
        PEPPERS_VARIABLE: settings.key_peppers,
        CREDENTIAL_KEY_VARIABLE: settings.credential_encryption_key,
        GROUNDING_KEY_VARIABLE: settings.grounding_key,
    }
    for variable, name in SECRETS.items():
        if not given[variable] and (data / name).exists():
            given[variable] = (data / name).read_text().strip()
    return {variable: value for variable, value in given.items() if value}


def fingerprints(given: Mapping[str, str]) -> dict[str, str]:
    return {variable: fingerprints_of(parse_versioned_secrets(variable, value)) for variable, value in given.items()}


def recorded_peppers(auth: "Connection") -> dict[str, str]:
    """Returns the peppers that auth has noted in its database when it started last."""
    recorded = auth.exec_driver_sql("SELECT peppers FROM epoch").scalar_one()
    return {PEPPERS_VARIABLE: recorded} if recorded else {}


def compare_secrets(needed: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Returns a line for each secret that the stores need and that is not given here; raises for one that is another
    than it was."""
    missing = []
    for variable, entries in needed.items():
        have = dict(entry.split(":") for entry in given.get(variable, "").split(",") if entry)
        name = f"{variable} (or {SECRETS.get(variable, 'its file')} in the data folder of `legato up`)"
        for version, fingerprint in (entry.split(":") for entry in entries.split(",")):
            if version not in have:
                missing.append(f"{name} with version {version}, fingerprint {fingerprint}")
            elif have[version] != fingerprint:
                raise BackupUnusable(
                    f"version {version} of {name} is another than the backup needs: its fingerprint is "
                    f"{have[version]}, and should be {fingerprint}"
                )
    return missing

"""The settings of `legato backup` and `legato restore`."""

import msgspec

from services.chassis.settings import PostgresAddress
from services.rules.residency import DataStore, keep_in_canada


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    data_region: str = ""
    database_url: PostgresAddress = ""
    database_region: str = ""
    # Where the bucket is.
    backup_region: str = ""
    # Named in the manifest by their fingerprints; empty: as they are kept in the data folder, if they are.
    key_peppers: str = ""
    credential_encryption_key: str = ""
    grounding_key: str = ""
    # Of the copy of the audit log, only to tell where it is.
    audit_copy: str = ""

    def check(self) -> None:
        stores = [DataStore("DATA", self.data_region), DataStore("DATABASE", self.database_region, self.database_url)]
        keep_in_canada(stores)

    def check_target(self, address: str) -> None:
        """Raises unless the folder or bucket of the backups is in Canada."""
        keep_in_canada([DataStore("BACKUP", self.backup_region, address if "://" in address else "")])

"""Assembles auth on one database, for the process and for tests."""

import asyncio
from pathlib import Path

from services.auth.admin import AccountAdmin, KeyAdmin, Sleep
from services.auth.keys import Peppers
from services.auth.maintenance import MaintenanceAdmin
from services.auth.maintenance_servicer import register_maintenance_admin
from services.auth.records import Changes
from services.auth.servicer import register_account_admin, register_auth, register_key_admin
from services.auth.store.epochs import changes_since, find_contradicted, note_peppers
from services.auth.uses import KeyUses
from services.auth.verifier import Verifier
from services.auth.watch import Watches
from services.chassis.database.database import Database
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

MIGRATIONS = Path(__file__).parent / "migrations"


class AuthService:
    def __init__(
        self, database: Database, peppers: Peppers, clock: Clock, log: Log, sleep: Sleep = asyncio.sleep
    ) -> None:
        async def read_changes(since_epoch: int) -> Changes:
            return await database.read(lambda connection: changes_since(connection, since_epoch))

        self._database = database
        self._peppers = peppers
        self._log = log
        self.verifier = Verifier(database, peppers, clock, log)
        self.key_uses = KeyUses(database, clock, log)
        self.watches = Watches(read_changes, self.key_uses.note, clock, log)
        self.registrations = [
            register_auth(self.verifier, self.watches),
            register_account_admin(AccountAdmin(database, clock, log, sleep)),
            register_key_admin(KeyAdmin(database, peppers, clock, log, sleep), clock),
            register_maintenance_admin(MaintenanceAdmin(database, clock, log, sleep)),
        ]

    async def note_peppers(self) -> None:
        """Records the peppers, before anything is served. If they differ from those of the replica that started last,
        callers drop their caches."""
        noted = self._peppers.noted
        contradicted = await self._database.read(lambda connection: find_contradicted(connection, self._peppers))
        if contradicted:
            # A lost secret was replaced by a new one: every key would be refused without a reason.
            raise SettingsError(
                f"LEGATO_KEY_PEPPERS: version {contradicted[0]} is not the secret that the keys in this database were "
                "created with: restore that secret or, if it is lost, give the new one its own version, such as 2:HEX "
                "(keys that were created with the lost one stay refused)"
            )
        if await self._database.write(lambda connection: note_peppers(connection, noted)):
            self._log.info("peppers.changed")

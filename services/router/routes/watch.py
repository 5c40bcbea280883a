"""Reads the routes file again and again, and takes it over once every router has read the same version."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

from legato_protos.metering.v1.staged_files_pb2 import ReportRoutesRequest
from legato_protos.metering.v1.staged_files_pb2_grpc import StagedFileServiceStub
from services.chassis.errors import LegatoError
from services.chassis.process.passes import run_passes
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.router.routes.reload import Reload
from services.router.routes.routes import RoutesInUse

EVERY_S: Final = 5.0
REPORT_WITHIN_S: Final = 3.0


class FleetReports:
    """Tells metering which version of the routes this router has read."""

    def __init__(self, metering: ReplicaChannel) -> None:
        self._metering = metering
        self._stub = StagedFileServiceStub(metering.channel)
        self._process_id = uuid4().hex

    async def start(self) -> None:
        await self._metering.start()

    async def is_agreed(self, version: str) -> bool:
        """Returns whether all routers have read this one; raises LegatoError while metering is away."""
        request = ReportRoutesRequest(process_id=self._process_id, version=version)
        return bool((await self._stub.ReportRoutes(request, timeout=REPORT_WITHIN_S)).is_agreed)


class RouteWatch:
    def __init__(
        self,
        reload: Reload,
        in_use: RoutesInUse,
        log: Log,
        fleet: FleetReports | None = None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """Follows the file with `fleet`; without it, a change is only reported, and an operator reloads it. A router
        that is leaving does not report any more, since its file may not be updated."""
        self._reload = reload
        self._in_use = in_use
        self._log = log
        self._fleet = fleet
        self._is_leaving = is_leaving
        # What could be taken over; empty while the file has a mistake.
        self.file_version = in_use.routes.version
        self._mistakes = ""

    async def run(self) -> None:
        """Looks periodically until cancelled."""
        if self._fleet is not None:
            await self._fleet.start()
        await run_passes(self.look, EVERY_S, self._log, "routes.failed")

    async def look(self) -> None:
        await self._read()
        if self._fleet is None or self._is_leaving():
            return
        try:
            is_agreed = await self._fleet.is_agreed(self.file_version)
        except LegatoError:
            # Without metering there are no chats either.
            return
        if is_agreed and self.file_version != self._in_use.routes.version:
            # If the file has changed again meanwhile, nothing happens: the next look finds it.
            with suppress(SettingsError):
                self._reload.now(self.file_version)

    async def _read(self) -> None:
        before, mistakes = self.file_version, ""
        try:
            self.file_version = (await asyncio.to_thread(self._reload.load)).version
        except SettingsError as error:
            self.file_version, mistakes = "", str(error)
        if mistakes != self._mistakes:
            self._mistakes = mistakes
            for mistake in mistakes.splitlines():
                self._log.warning("routes.refused", reason=mistake)
        if self.file_version not in ("", before, self._in_use.routes.version):
            self._log.info("routes.staged", routes_version=self.file_version)

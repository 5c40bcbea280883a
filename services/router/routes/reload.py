"""Reloads the routes file while chats run, and reads what might become of it."""

import asyncio
import contextlib
import tomllib
from pathlib import Path
from typing import Final

from services.chassis.settings import SettingsError
from services.chassis.small_file import read_small_file
from services.chassis.telemetry.log import Log
from services.router.providers.base import Timeouts
from services.router.routes.keys.key_origins import KeyOrigins
from services.router.routes.retention_promise import utc_today, warn_of_lapses
from services.router.routes.routes import Routes, RoutesInUse, RoutesMistaken, load_routes, read_routes

PROMISES_CHECKED_EVERY_S: Final = 24 * 3600.0


class Reload:
    def __init__(self, path: Path, timeouts: Timeouts, in_use: RoutesInUse, log: Log) -> None:
        self._path = path
        self._timeouts = timeouts
        self._in_use = in_use
        self._log = log
        self._key_origins = KeyOrigins(path.parent)
        with contextlib.suppress(OSError, ValueError):
            self._key_origins.record(read_small_file(path))

    def read(self, text: str) -> Routes:
        """Returns the routes that the file would have with this text, which may send no API key to another server than
        the file does; raises RoutesMistaken."""
        try:
            self._key_origins.record(read_small_file(self._path))
        except (OSError, ValueError):
            raise RoutesMistaken(self._path, ["cannot be read, so it is unknown which server gets which key"]) from None
        # Before any key is read. A text that is no TOML names none, and has its own mistake.
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if moved := self._key_origins.find_moved_keys(text):
                raise RoutesMistaken(self._path, moved)
        return read_routes(text, self._path, timeouts=self._timeouts)

    def load(self, version: str = "") -> Routes:
        """Returns the routes of the file, which must have this version, if one is given; raises SettingsError."""
        routes = load_routes(self._path, timeouts=self._timeouts)
        if version and routes.version != version:
            raise SettingsError(f"{self._path} has version {routes.version} by now, and not {version}")
        return routes

    def now(self, version: str = "") -> None:
        """Reloads for new chats; running ones keep their routes. Raises SettingsError, and then nothing has changed."""
        try:
            routes = self.load(version)
        except SettingsError as error:
            for mistake in str(error).splitlines():
                self._log.warning("routes.refused", reason=mistake)
            raise
        self._in_use.replace(routes)
        self._log.info("routes.reloaded", routes_version=routes.version)
        self.warn_of_lapses()

    def warn_of_lapses(self) -> None:
        """Logs the promises of providers that lapse soon. A lapsed one is refused when the routes are loaded, but the
        routes that are in use stay: chats are not cut off at midnight."""
        warn_of_lapses(self._in_use.routes.providers, utc_today(), self._log)

    async def watch_promises(self) -> None:
        while True:
            self.warn_of_lapses()
            await asyncio.sleep(PROMISES_CHECKED_EVERY_S)

    def on_signal(self) -> None:
        """Reloads on SIGHUP; mistakes are found in the log."""
        with contextlib.suppress(SettingsError):
            self.now()

"""Follows the files of API keys, so that a key is rotated without a restart, and without a reload of the routes."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from services.chassis.file_stamp import Stamp, stamp_of
from services.chassis.process.passes import run_passes
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.router.routes.keys.api_keys import read_key_file
from services.router.routes.routes import RoutesInUse

EVERY_S: Final = 2.0


class KeyWatch:
    def __init__(self, in_use: RoutesInUse, log: Log) -> None:
        self._in_use = in_use
        self._log = log
        # By provider.
        self._seen: dict[str, tuple[Path, Stamp]] = {}
        # Providers whose file has no key: calls go on with the last one.
        self.unusable: set[str] = set()

    async def run(self) -> None:
        """Looks periodically until cancelled."""
        await run_passes(self.look, EVERY_S, self._log, "provider.keys_failed")

    async def look(self) -> None:
        providers = self._in_use.routes.providers
        files = {name: route.api_key_file for name, route in providers.items() if route.api_key_file is not None}
        self.unusable &= files.keys()
        changed = {}
        for name, path in files.items():
            seen = path, stamp_of(path)
            if seen == self._seen.get(name):
                continue
            self._seen[name] = seen
            try:
                api_key = read_key_file(path)
            except SettingsError as error:
                self.unusable.add(name)
                self._log.warning("provider.key_unusable", provider=name, reason=f"{error}; the last key stays in use")
                continue
            self.unusable.discard(name)
            if api_key != providers[name].api_key:
                changed[name] = replace(providers[name], api_key=api_key)
        if changed:
            self._in_use.use_keys({**providers, **changed})
        for name in changed:
            self._log.info("provider.key_replaced", provider=name)

"""Reloads the routes file while chats run, and tells beforehand what that would change, line by line and without
secrets."""

import asyncio
import contextlib
import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any, Final

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.router.providers.base import Timeouts
from services.router.routing.class_route import SETTINGS
from services.router.routing.model_states import ModelStates
from services.router.routing.retention_promise import utc_today, warn_of_lapses
from services.router.routing.routes import Routes, load_routes, read_routes
from services.router.routing.target import Target

PROMISES_CHECKED_EVERY_S: Final = 24 * 3600.0
# In an address: a user with a password, and a query.
_PASSWORD: Final = re.compile(r"//[^/@]*@")
_QUERY: Final = re.compile(r"\?.*")
# Named, but never shown.
_HIDDEN: Final = {"api_key": "key", "extra_json": "body"}


class Reload:
    def __init__(self, path: Path, timeouts: Timeouts, model_states: ModelStates, log: Log) -> None:
        self._path = path
        self._timeouts = timeouts
        self._model_states = model_states
        self._log = log

    @property
    def path(self) -> Path:
        return self._path

    def read(self, text: str) -> Routes:
        """Returns the routes that the file would have with this text; raises RoutesMistaken."""
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
        self._model_states.replace(routes)
        self._log.info("routes.reloaded", routes_version=routes.version)
        self.warn_of_lapses()

    def warn_of_lapses(self) -> None:
        """Logs the promises of providers that lapse soon. A lapsed one is refused when the routes are loaded, but the
        routes that are in use stay: chats are not cut off at midnight."""
        warn_of_lapses(self._model_states.routes.providers, utc_today(), self._log)

    async def watch_promises(self) -> None:
        while True:
            self.warn_of_lapses()
            await asyncio.sleep(PROMISES_CHECKED_EVERY_S)

    def on_signal(self) -> None:
        """Reloads on SIGHUP; mistakes are found in the log."""
        with contextlib.suppress(SettingsError):
            self.now()


def find_changes(current: Routes, wanted: Routes) -> list[str]:
    """Returns lines that begin with - where they would go, with + where they would come; none if nothing changes."""
    # Without the two lines that name the files.
    difference = islice(unified_diff(_lines(current), _lines(wanted), n=0, lineterm=""), 2, None)
    found = [f"{line[0]} {line[1:]}" for line in difference if line[0] in "-+"]
    return [*found, *_hidden_changes(current, wanted)]


def _lines(routes: Routes) -> list[str]:
    lines = []
    for class_id, route in sorted(routes.classes.items()):
        lines.append(f"{class_id}: character {routes.characters[class_id].version}")
        for number, tier in enumerate(route.tiers, start=1):
            for member in tier:
                target, weight = member.target, f", weight {member.weight}" if len(tier) > 1 else ""
                lines.append(f"{class_id}: {number}. {_model(target, weight)}")
        # One line each, so that a change tells only what changes.
        lines.extend(f"{class_id}: {name} {value}" for name, value in _set_in(route).items() if name in SETTINGS)
        if (canary := route.canary) is not None:
            accounts = "".join(f", {account_id}" for account_id in sorted(canary.accounts))
            lines.append(f"{class_id}: canary {_model(canary.target, f', {canary.percent:g} %{accounts}')}")
        if (shadow := route.shadow) is not None:
            share = f", {shadow.percent:g} %, {shadow.calls_per_minute} calls a minute"
            lines.append(f"{class_id}: shadow {_model(shadow.target, share)}")
    for name, provider in sorted(routes.providers.items()):
        lines.append(f"provider {name}: {provider.kind}{_terms(provider, without={'name', 'kind', *_HIDDEN})}")
    return lines


def _model(target: Target, share: str) -> str:
    terms = _terms(target, without={"provider", "model_name"})
    return f"{target.model_name} of {target.provider}{share}{terms}"


def _terms(described: Any, without: Iterable[str]) -> str:
    return "".join(f", {name} {masked(value)}" for name, value in _set_in(described).items() if name not in without)


def _set_in(described: Any) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, by name."""
    values = {each.name: (getattr(described, each.name), each.default) for each in fields(described)}
    return {name: value for name, (value, default) in values.items() if value != default}


def masked(value: object) -> object:
    """Returns an address without what may be secret in it: a password, and its query."""
    return _QUERY.sub("?***", _PASSWORD.sub("//***@", value)) if isinstance(value, str) else value


def _hidden_changes(current: Routes, wanted: Routes) -> list[str]:
    found = []
    for name, provider in sorted(wanted.providers.items()):
        before = current.providers.get(name)
        for field, word in _HIDDEN.items():
            if before is not None and getattr(before, field) != getattr(provider, field):
                found.append(f"+ provider {name}: another {word}")
    return found

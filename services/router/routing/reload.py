"""Reads the routes again while the router runs."""

import contextlib
from pathlib import Path

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.router.providers.base import Timeouts
from services.router.routing.model_states import ModelStates
from services.router.routing.routes import load_routes


class Reload:
    def __init__(self, path: Path, timeouts: Timeouts, model_states: ModelStates, log: Log) -> None:
        self._path = path
        self._timeouts = timeouts
        self._model_states = model_states
        self._log = log

    def now(self) -> None:
        """For new chats; those that run keep what they have. Raises SettingsError, and then nothing has changed."""
        try:
            routes = load_routes(self._path, timeouts=self._timeouts)
        except SettingsError as error:
            for mistake in str(error).splitlines():
                self._log.warning("routes.refused", reason=mistake)
            raise
        self._model_states.replace(routes)
        self._log.info("routes.reloaded")

    def on_signal(self) -> None:
        """As `now`; whoever sends a signal finds the mistakes in the log."""
        with contextlib.suppress(SettingsError):
            self.now()

"""Coverage switched on and off in a test process: tracing costs half as much again as the tests themselves."""

from typing import Any

import pytest


class Coverage:
    """Does nothing unless pytest-cov measures (`--cov`)."""

    def __init__(self, config: pytest.Config) -> None:
        plugin: Any = config.pluginmanager.getplugin("_cov")
        self._controller: Any = getattr(plugin, "cov_controller", None)
        # Every worker imports the same modules, so one of them measures it. The process that has workers measured what
        # tests/conftest.py imports, before it came here; it has nothing else to measure.
        if hasattr(config, "workerinput"):
            self._measures_imports = config.workerinput["workerid"] == "gw0"
        else:
            self._measures_imports = config.getoption("dist", "no") == "no"
        self._is_on = self._controller is not None and self._controller.started

    def begin_collection(self) -> None:
        self.measure(on=self._measures_imports)

    def measure(self, *, on: bool) -> None:
        if self._controller is None or on == self._is_on:
            return
        self._is_on = on
        if on:
            self._controller.resume()
        else:
            self._controller.pause()

"""The plugin of pytest that measures coverage: `PYTEST_PLUGINS=tests.support.coverage.plugin python -m pytest`.

pytest-xdist gives its workers the plugins of the command line too late, after they imported tests/conftest.py.
"""

import coverage
import pytest

from tests.support.coverage.measurement import Measurement

MEASUREMENT = pytest.StashKey[Measurement]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    settings = coverage.Coverage(config_file=str(early_config.rootpath / "pyproject.toml"))
    folders = settings.get_option("run:source")
    assert isinstance(folders, list)
    measurement = Measurement([early_config.rootpath / folder for folder in folders])
    measurement.begin()
    early_config.stash[MEASUREMENT] = measurement


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes what ran while pytest-xdist still waits for its workers: it ends a little before they do."""
    session.config.stash[MEASUREMENT].write(session.config.rootpath / ".coverage")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[MEASUREMENT].end()

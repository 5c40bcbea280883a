"""`legato up`, really running, with output that a test reads as a person would."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from cli.main import legato
from tests.support.forked.forked_process import ForkedProcess
from tests.support.service import LEGATO

# Leads nowhere: what is tested here asks no model.
ROUTES = """
[providers.nowhere]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
zero_retention = true

[models.none]
provider = "nowhere"
name = "none"
context_tokens = 8192
max_output_tokens = 1024
""" + "".join(f'\n[classes.{name}]\nmodels = ["none"]\n' for name in ("mezzo", "forte", "fortissimo"))


# What is started with `nohup` ignores SIGHUP, and so does all that it starts: no terminal that closes would end it.
_AS_IN_A_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)

# Whatever the machine has.
ONE_OF_EACH = ("--workers", "1", "--routers", "1", "--metering", "1")


class Up:
    """Started by the constructor; `ready()` waits for the line that says so."""

    def __init__(
        self, data: Path, *arguments: str, environ: Mapping[str, str] | None = None, is_forked: bool = False
    ) -> None:
        """Starts it as a person does, unless it `is_forked`, which takes half of the processor time."""
        self.data = data
        routes = data.with_name(f"{data.name}-routes.toml")
        routes.write_text(ROUTES)
        # It takes time to start, and few need it.
        without = () if "--console-port" in arguments else ("--no-console",)
        command = [
            "up",
            *without,
            "--port",
            "0",
            "--data",
            str(data),
            "--routes",
            str(routes),
            *ONE_OF_EACH,
            *arguments,
        ]
        variables = {**os.environ, **(environ or {})}
        (output, stdout), (errors, stderr) = os.pipe(), os.pipe()
        if is_forked:
            self.process: subprocess.Popen[bytes] | ForkedProcess = ForkedProcess.start_legato(
                command, variables, stdout=stdout, stderr=stderr
            )
        else:
            launcher = [sys.executable, "-I", "-S", "-c", _AS_IN_A_TERMINAL, str(LEGATO)]
            self.process = subprocess.Popen([*launcher, *command], stdout=stdout, stderr=stderr, env=variables)
        os.close(stdout)
        os.close(stderr)
        self.stdout, self._errors = os.fdopen(output), os.fdopen(errors)
        self.stderr: list[str] = []
        self._address = ""
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def _read_stderr(self) -> None:
        self.stderr.extend(iter(self._errors.readline, ""))

    def ready(self) -> str:
        """The base address."""
        if not self._address:
            word, _, self._address = self.line().partition(" ")
            assert word == "ready", "".join(self.stderr)
        return self._address

    def line(self) -> str:
        return self.stdout.readline().rstrip("\n")

    def ended(self) -> tuple[int, str]:
        """The exit code, and all that was said on stderr."""
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=60)
        return code, "".join(self.stderr)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.ended()[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        self._reader.join(timeout=60)
        self.stdout.close()
        self._errors.close()

    def legato(self, *arguments: str) -> Result:
        """One command, in this process: a new one would spend its time on imports."""
        return CliRunner().invoke(legato, [*arguments, "--data", str(self.data)])

    def json(self, *arguments: str) -> Any:
        done = self.legato(*arguments, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def processes(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.json("status")}


def pids_that_live(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False

"""One agent in folders of its own, which knows nothing but the settings of its row, and reaches nothing but this
service."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.rules.agents import TASK as TASK_MARK
from services.rules.agents import Agent
from tests.support.toolchains.agents import agents_path
from tests.support.upstreams.shell_model import TASK

# Of a busy machine.
TIMEOUT_S = 240.0
# What is started in the background of a script ignores SIGINT, and so does all that it starts.
_AS_IN_A_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
# Whatever is not on this machine: an agent that needs its vendor fails.
NOWHERE = "http://127.0.0.1:9"


class AgentProcess:
    """Started by `start`, in the folder `work`."""

    def __init__(self, agent: Agent, base_url: str, api_key: str, folder: Path) -> None:
        self.agent = agent
        self.home, self.work = folder / "home", folder / "work"
        for each in (self.home, self.work):
            each.mkdir()
        self._settings = agent.settings.filled(base_url, api_key)
        self._installed = agents_path()
        for path, text in self._settings.files.items():
            file = self.home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if self._settings.command:
            self._run(self._settings.command)

    @property
    def _environ(self) -> Mapping[str, str]:
        proxies = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1,localhost"}
        lower = {name.lower(): value for name, value in proxies.items()}
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PATH": self._installed["PATH"],
            "PYTHONPATH": self._installed["PYTHONPATH"],
            **proxies,
            **lower,
            **self._settings.environment,
        }

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            [*command], cwd=self.work, env=self._environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, command: Sequence[str] = ()) -> "subprocess.Popen[str]":
        """Starts it on the task, or with another command."""
        programs = Path(self._installed["PROGRAMS"])
        command = [TASK if word == TASK_MARK else word for word in command or self.agent.command]
        command = [str(programs / word) if word.endswith((".js", ".py")) else word for word in command]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _AS_IN_A_TERMINAL, *command],
            cwd=self.work,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: Sequence[str] = ()) -> tuple[int, str]:
        """Returns the exit code, and all that it says."""
        process = self.start(command)
        try:
            said, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            self.end(process)
        return process.returncode, said

    def end(self, process: "subprocess.Popen[str]") -> None:
        """Ends the agent with all that it has started, services of its own among them."""
        home = f"HOME={self.home}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if home in (folder / "environ").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

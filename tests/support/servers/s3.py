"""A server of our own that speaks S3, with one bucket."""

import secrets
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.servers.child import start_child
from tests.support.servers.ports import free_port

START_TIMEOUT_S = 60


class S3:
    """Moto's server; it keeps everything in memory. `environ` is what its clients read."""

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="legato-s3-", dir="/tmp"))
        self._output = self._folder / "output"
        self._endpoint = f"http://127.0.0.1:{free_port()}"
        self.environ = {
            "AWS_ENDPOINT": self._endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "legato",
            "AWS_SECRET_ACCESS_KEY": "of the tests",
            "AWS_REGION": "ca-central-1",
        }
        port = self._endpoint.rpartition(":")[2]
        self._process = start_child(
            [sys.executable, "-m", "moto.server", "-p", port], self._output, last_signal=signal.SIGKILL
        )
        self._wait_until_ready()

    def new_bucket(self) -> str:
        """Creates an empty bucket, and returns its URL."""
        name = f"bucket-{secrets.token_hex(6)}"
        self._request("PUT", f"/{name}")
        return f"s3://{name}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
        shutil.rmtree(self._folder)

    def _request(self, method: str, path: str) -> None:
        with urllib.request.urlopen(urllib.request.Request(self._endpoint + path, method=method)) as response:
            response.read()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._request("GET", "/")
                return
            except (ConnectionError, urllib.error.URLError):
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"S3 did not start:\n{self._output.read_text()}") from None
                time.sleep(0.05)

"""A way to the Valkey of tests that they can cut."""

from pathlib import Path
from typing import Any

import redis


class Link:
    """A way to the server that can be cut: the client sees a server that went away."""

    def __init__(self, folder: Path, valkey_url: str) -> None:
        self._path = folder / "valkey.sock"
        self._target = valkey_url.removeprefix("unix://")
        self._server: Any = redis.Redis.from_url(valkey_url)
        self.url = f"unix://{self._path}"
        self.join()

    def join(self) -> None:
        self._path.symlink_to(self._target)

    def lead_to(self, url: str) -> None:
        self._path.unlink()
        self._target = url.removeprefix("unix://")
        self.join()

    def cut(self) -> None:
        self._path.unlink()
        self._server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def silence(self) -> None:
        self._server.execute_command("CLIENT", "PAUSE", "60000", "WRITE")

    def close(self) -> None:
        self._server.execute_command("CLIENT", "UNPAUSE")
        self._server.close()

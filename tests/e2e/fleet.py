"""Three edges and one metering or more, each a process of its own."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.commands.account.accounts import create_account
from cli.commands.account.keys import create_key
from cli.connection import ServiceStubs, call_service, running_services
from cli.supervision.health import is_listening
from legato_protos.auth.v1.auth_pb2 import Key, UpdateKeyRequest
from legato_protos.metering.v1.metering_pb2 import AuditRequest
from tests.support.forked.forked_process import ForkedProcess
from tests.support.servers.ports import free_port
from tests.support.service import ROUTES, make_data_folder
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

EDGES = ("edge-1", "edge-2", "edge-3")
CREDIT_NANOS = 5 * 10**9


@dataclass(frozen=True)
class Edge:
    name: str
    address: tuple[str, int]


@dataclass(frozen=True)
class MadeKey:
    api_key: str
    record: Key


class Fleet:
    def __init__(self, upstream: Upstream, settings: Mapping[str, str], meterings: int = 1) -> None:
        """More than one metering need a database that they can share, and a Valkey."""
        # A short name: the path of a unix socket may have about a hundred characters.
        self._folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
        (self._folder / "run").mkdir(mode=0o700)
        if "LEGATO_DATABASE_URL" not in settings:
            make_data_folder(self._folder)
        self._meterings = [f"metering-{number + 1}" for number in range(meterings)]
        routes = self._folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=upstream.base_url))
        # Settings of the person who runs the tests are not for this service.
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._environ = {
            **own,
            "LEGATO_DATA": str(self._folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            "LEGATO_METERING_ADDRESS": ",".join(f"unix:{self._socket(name)}" for name in self._meterings),
            # The machine may be busy with other things: that is not what is tried out here.
            "LEGATO_EDGE_QUEUEING_S": "0",
            **settings,
        }
        self.edges = [Edge(name, ("127.0.0.1", free_port())) for name in EDGES]
        self._processes: dict[str, ForkedProcess] = {}

    def __enter__(self) -> "Fleet":
        for name in ("auth", "router", *self._meterings, *EDGES):
            self._start(name)
        self._wait_until_serving()
        self._services: ServiceStubs = running_services(
            self._folder, {"LEGATO_METERING_ADDRESS": f"unix:{self._socket(self._meterings[0])}"}
        )
        return self

    def __exit__(self, *failure: object) -> None:
        self._services.close()
        for process in self._processes.values():
            process.kill()
            process.wait(WAIT_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_key(self, **limits: int) -> MadeKey:
        """Makes a key of a new funded account."""
        account, _ = create_account(self._services, f"test {secrets.token_hex(4)}", CREDIT_NANOS)
        made = create_key(self._services, account.account_id, "test", (), None)
        if limits:
            request = UpdateKeyRequest(key_id=made.key.key_id)
            for name, limit in limits.items():
                setattr(request, name, limit)
            call_service(self._services.keys.UpdateKey, request)
        return MadeKey(made.api_key, made.key)

    def audit(self) -> list[str]:
        return list(call_service(self._services.credits.Audit, AuditRequest()).violations)

    def restart(self, name: str) -> None:
        """Killed, and started again."""
        self._processes[name].kill()
        self._processes[name].wait(WAIT_TIMEOUT_S)
        self._start(name)
        self._wait_until_serving()

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def _start(self, name: str) -> None:
        service = name.partition("-")[0]
        own = {f"LEGATO_{service.upper()}_LISTEN": f"unix:{self._socket(name)}"}
        for edge in self.edges:
            if edge.name == name:
                own = {
                    "LEGATO_EDGE_PORT": str(edge.address[1]),
                    "LEGATO_EDGE_HEALTH_LISTEN": f"unix:{self._socket(name)}",
                }
        module = "edge" if service == "edge" else f"services.{service}"
        self._processes[name] = ForkedProcess.start_module(module, self._environ | own, self._folder / f"{name}.log")

    def _wait_until_serving(self) -> None:
        def is_serving() -> bool:
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not ended, f"{ended} ended:\n{self.log_text()}"
            return all(is_listening(self._socket(name)) for name in self._processes)

        wait_until(is_serving)

    def _socket(self, name: str) -> Path:
        return self._folder / "run" / f"{name}.sock"

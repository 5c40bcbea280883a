"""The whole service, `legato up`, with an upstream that does as it is told.

with UpstreamThread() as upstream, Service(upstream) as service:
    account = service.new_account(credits="5.00")
    client = openai.OpenAI(base_url=service.base_url, api_key=service.new_key(account))
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from click.testing import CliRunner

from cli.commands.account.accounts import balance_of, create_account
from cli.commands.account.keys import create_key
from cli.commands.ledger.usage import list_usage
from cli.connection import ServiceStubs, call_service, running_services
from cli.main import legato
from cli.supervision.data_folder import read_processes
from cli.supervision.health import HealthProbe
from legato_protos.auth.v1.auth_pb2 import CreateKeyResponse
from legato_protos.metering.v1.metering_pb2 import AuditRequest, Balance, UsageRow
from legato_protos.router.v1.router_pb2 import ReloadRoutesRequest
from services.chassis.money import parse_usd
from services.metering.credit.records import Entry, Hold
from tests.support.books import read_entries, read_holds
from tests.support.forked.forked_process import ForkedProcess
from tests.support.servers.child import start_child
from tests.support.servers.migrated import migrated_sqlite
from tests.support.upstreams.openai import Recorded, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

# Of millions of bookings.
AUDIT_TIMEOUT_S = 900.0

# A busy machine is late; only tests of what an edge, a router and `up` do then want them to mind.
NEVER_SATURATED = {
    "LEGATO_EDGE_QUEUEING_S": "0",
    "LEGATO_UNRESPONSIVE_AFTER_S": "0",
}

LEGATO = Path(sys.executable).with_name("legato")
SERVICES = Path(__file__).parents[2] / "services"

ROUTES = """
[providers.upstream]
kind = "openai"
base_url = "{base_url}"
zero_retention = true

[models.wide]
provider = "upstream"
name = "upstream-model"
context_tokens = 1100000
max_output_tokens = 131072

[classes.mezzo]
models = ["wide"]

[classes.forte]
models = ["wide"]

[classes.fortissimo]
models = ["wide"]
"""


def make_data_folder(data: Path) -> Path:
    """Makes a folder whose databases have their tables, which spares the first start the migrations. Tests of
    `legato up` itself begin with nothing (tests/cli/)."""
    data.mkdir(mode=0o700, exist_ok=True)
    for name in ("auth", "metering"):
        migrated_sqlite(data / f"{name}.db", name, SERVICES / name / "migrations")
    return data


class Addressed(Protocol):
    @property
    def base_url(self) -> str: ...


class UpstreamThread:
    """An `Upstream`, of whatever vendor, on an event loop of its own, so that tests of any kind can use it."""

    def __init__(self, upstream: Upstream | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.upstream = upstream or Upstream()

    def __enter__(self) -> Upstream:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.upstream.start(), self._loop).result()
        return self.upstream

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self.upstream.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def wait_for_requests(upstream: Upstream, count: int = 1) -> Recorded:
    """Wait until so many requests have reached the upstream; the last of them."""
    wait_until(lambda: len(upstream.requests) >= count)
    return upstream.requests[count - 1]


class Service:
    def __init__(
        self,
        upstream: Addressed,
        environ: Mapping[str, str] | None = None,
        *,
        workers: int = 1,
        routers: int = 1,
        routes: str = ROUTES,
        is_forked: bool = True,
    ) -> None:
        """`environ` holds settings beyond those that `legato up` chooses itself; `workers` is how many edges it has.
        Unless it `is_forked`, it starts as a person starts it, which takes twice the processor time."""
        # A short name: the path of a unix socket may have about a hundred characters.
        self._folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
        self.data = self._folder / "data"
        self.data.mkdir(mode=0o700)
        self._routes = self._folder / "routes.toml"
        self._routes.write_text(routes.format(base_url=upstream.base_url))
        temporary = self._folder / "tmp"
        temporary.mkdir()
        settings = {"TMPDIR": str(temporary), **NEVER_SATURATED, **(environ or {})}
        self._database_url = settings.get("LEGATO_DATABASE_URL", "")
        if not self._database_url:
            make_data_folder(self.data)
        # Settings of the person who runs the tests are not for this service.
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._environ = own | settings
        read_at_start = [name for name in environ or {} if name.startswith(("PYTHON", "LD_", "GRPC_", "MALLOC_"))]
        assert not (is_forked and read_at_start), f"{read_at_start} are read at the start of a process: no fork"
        self._is_forked = is_forked
        self._workers, self._routers = workers, routers
        self._output = self._folder / "output"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._services: ServiceStubs | None = None
        self.base_url = ""

    def __enter__(self) -> "Service":
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        begun_at = self._output.stat().st_size if self._output.exists() else 0
        command = ["up", "--no-console", "--port", "0", "--data", str(self.data)]
        command += ["--routes", str(self._routes), "--workers", str(self._workers)]
        command += ["--routers", str(self._routers), "--metering", "1"]
        if self._is_forked:
            with self._output.open("ab") as output:
                fd = output.fileno()
                self._process = ForkedProcess.start_legato(command, self._environ, stdout=fd, stderr=fd)
        else:
            self._process = start_child(
                [LEGATO, *command], self._output, last_signal=signal.SIGTERM, environ=self._environ
            )

        def ready_line() -> str | None:
            said = self._output.read_bytes()[begun_at:].decode()
            if self._process is None or self._process.poll() is not None:
                raise AssertionError(f"legato up ended:\n{said}\n{self.log_text()}")
            # Only whole lines.
            return next((line for line in said.split("\n")[:-1] if line.startswith("ready ")), None)

        try:
            self.base_url = wait_until(ready_line).removeprefix("ready ")  # type: ignore[union-attr]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output_text()}\n{self.log_text()}") from None
        self._services = running_services(self.data, environ={})

    def stop(self) -> None:
        if self._process is None:
            return
        if self._services is not None:
            self._services.close()
        self._process.terminate()
        try:
            exit_code = self._process.wait(WAIT_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process = None
        assert exit_code == 0, f"exit code {exit_code}\n{self.output_text()}\n{self.log_text()}"

    @property
    def services(self) -> ServiceStubs:
        assert self._services is not None, "the service is not running"
        return self._services

    @property
    def supervisor_id(self) -> int:
        assert self._process is not None, "the service is not running"
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.base_url.removeprefix("http://").removesuffix("/v1").rpartition(":")
        return host, int(port)

    def new_account(self, credits: str = "5.00") -> str:
        account, _ = create_account(self.services, f"test {secrets.token_hex(4)}", parse_usd(credits))
        return account.account_id

    def new_key(self, account_id: str, scopes: Sequence[str] = ()) -> str:
        return self.make_key(account_id, scopes).api_key

    def make_key(
        self,
        account_id: str,
        scopes: Sequence[str] = (),
        expires_after_days: int | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> CreateKeyResponse:
        """The key with its record."""
        return create_key(self.services, account_id, "test", scopes, expires_after_days, limits=limits or {})

    def balance(self, account_id: str) -> Balance:
        return balance_of(self.services, account_id)

    def settled_balance_nanos(self, account_id: str) -> int:
        """The balance once no request holds any of it: settlements reach the ledger after the answer."""
        wait_until(lambda: not self.balance(account_id).held_nanos)
        return self.balance(account_id).balance_nanos

    def usage(self, account_id: str, group: Sequence[str] = ()) -> list[UsageRow]:
        """Lists the last day and next hour, so that no test fails at midnight."""
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        start, end = hour - timedelta(hours=24), hour + timedelta(hours=2)
        return [*chain.from_iterable(list_usage(self.services, account_id, start, end, "hour", list(group)))]

    def audit(self) -> list[str]:
        """Violations: there should be none."""
        return list(call_service(self.services.credits.Audit, AuditRequest(), timeout_s=AUDIT_TIMEOUT_S).violations)

    def holds(self, account_id: str) -> list[Hold]:
        """Reads the holds of an account's requests, oldest first."""
        return read_holds(self.data, account_id, self._database_url)

    def entries(self, account_id: str) -> list[Entry]:
        """Reads the bookings of the account's requests, oldest first."""
        return read_entries(self.data, account_id, self._database_url)

    def read_routes(self) -> str:
        return self._routes.read_text()

    def write_routes(self, routes: str) -> None:
        """Writes what the router finds when asked to read them again."""
        self._routes.write_text(routes)

    def follow_routes(self, routes: str) -> None:
        """Has every router read them by the time it returns."""
        self.write_routes(routes)
        for router in self.services.routers.values():
            call_service(router.ReloadRoutes, ReloadRoutesRequest())

    def legato(self, *arguments: str) -> Any:
        """Runs a command in this process, since a new one would spend its time on imports; returns its JSON."""
        done = CliRunner().invoke(legato, [*arguments, "--json", "--data", str(self.data)])
        assert done.exit_code == 0, f"{arguments}: exit code {done.exit_code}: {done.stderr}"
        return json.loads(done.stdout)

    def kill(self, process: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one process, and wait until the supervisor has it serving again."""
        with self.restart_of(process):
            self.signal(process, number)

    def signal(self, process: str, number: signal.Signals) -> None:
        os.kill(self.process_id(process), number)

    def process_id(self, process: str) -> int:
        process_id: int = self._state_of(process)["pid"]
        return process_id

    @contextmanager
    def restart_of(self, process: str) -> Iterator[None]:
        """Waits until the supervisor has a process serving again that was ended inside."""
        before = self._state_of(process)
        yield

        def is_back() -> bool:
            now = self._state_of(process)
            return now["restarts"] > before["restarts"] and now["pid"] and HealthProbe(**now["health"]).is_serving()

        wait_until(is_back)

    def _state_of(self, process: str) -> dict[str, Any]:
        return self.states()[process]

    def states(self) -> dict[str, dict[str, Any]]:
        """The supervisor's word about each process."""
        return {state["name"]: state for state in read_processes(self.data)["processes"]}

    def files(self) -> list[Path]:
        """Every file that the service has, its output and temporary files among them."""
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def output_text(self) -> str:
        """Reads `legato up`'s own output."""
        return self._output.read_text()

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted((self.data / "logs").glob("*")))

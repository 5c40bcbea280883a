"""The console as a process of its own, with services behind it, under the memory limit of its manifest."""

import asyncio
import contextlib
import os
import re
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from ruamel.yaml import YAML

from services.chassis.telemetry.log import Log
from tests.console.backends import Backends
from tests.console.servers import new_server
from tests.support.waiting import until
from tests.support.watched_process import WatchedProcess

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "base" / "console.yaml"
HOST = "localhost:8081"
SERVES = re.compile(rb'"event":\s*"console\.serves".*?"address":\s*"127\.0\.0\.1:(\d+)"')


def memory_limit_bytes() -> int:
    [deployment] = [each for each in YAML(typ="safe").load_all(MANIFEST) if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    found = re.fullmatch(r"(\d+)Mi", container["resources"]["limits"]["memory"])
    assert found
    return int(found[1]) * 1024 * 1024


class ConsoleProcess(WatchedProcess):
    def __init__(self, process: asyncio.subprocess.Process, log_file: Path, backends: Backends) -> None:
        super().__init__(process.pid)
        self._process = process
        self._log_file = log_file
        found = SERVES.search(log_file.read_bytes())
        assert found
        self.address = ("127.0.0.1", int(found[1]))
        self.backends = backends

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @property
    def log_text(self) -> str:
        return self._log_file.read_text()

    def limit_memory(self) -> None:
        """Leaves it what the manifest does: beyond that it gets no more memory."""
        growth_bytes = memory_limit_bytes() - self.begin_peak()
        most_bytes = self.bytes_in("VmData") + growth_bytes
        resource.prlimit(self.process_id, resource.RLIMIT_DATA, (most_bytes, most_bytes))


@contextlib.asynccontextmanager
async def running_console(folder: Path, log: Log, **environ: str) -> AsyncIterator[ConsoleProcess]:
    backends = Backends(folder, f"http://{HOST}")
    await backends.start(folder, log)
    servers = {service: new_server(service, backends, log) for service in ("auth", "metering", "router", "payments")}
    given = {"LEGATO_DATA": str(folder), "LEGATO_CONSOLE_PORT": "0", **environ}
    for service, server in servers.items():
        given[f"LEGATO_{service.upper()}_ADDRESS"] = f"unix:{folder}/{service}.sock"
        server.add_insecure_port(f"unix:{folder}/{service}.sock")
        await server.start()
    (folder / "run").mkdir(exist_ok=True)
    log_file = folder / "console.log"
    with log_file.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "console", cwd=ROOT, env=os.environ | given, stdout=stream, stderr=stream
        )
    try:
        await until(lambda: SERVES.search(log_file.read_bytes()) is not None)
        yield ConsoleProcess(process, log_file, backends)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        for server in servers.values():
            await server.stop(None)
        await backends.close()

"""The console's port: the console under the memory limit of its manifest, and clients that send anything at all."""

import io
import random
import tempfile
from pathlib import Path
from typing import Final

from services.chassis.telemetry.log import Log
from tests.campaigns.fuzz.hostile_visits import HostileVisits
from tests.campaigns.fuzz.requests import HostileRequest, RequestMaker
from tests.support.console_process import HOST, memory_limit_bytes, running_console

LARGEST_BYTES: Final = 1024 * 1024
PATHS: Final = (
    "/sign-in",
    "/sign-in?next=%2Fkeys",
    "/stripe/webhook",
    "/documents",
    "/confirm",
    "/static/console.css",
    "/%2e%2e%2fetc",
    "/%00",
    "*",
    "/" + "x" * 500,
)
PROBE: Final = f"HEAD /sign-in HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


async def fuzz_console_port(seconds: float, seed: int, largest_bytes: int = LARGEST_BYTES) -> list[str]:
    """Returns what was wrong; each with the number by which the seed makes it again."""

    def make(number: int) -> HostileRequest:
        return RequestMaker(random.Random(f"{seed} {number}"), [], largest_bytes, PATHS, HOST).make()

    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        async with running_console(Path(folder), Log("console", io.StringIO())) as console:
            visits = HostileVisits(console, console.address, seed, make)
            console.limit_memory()
            await visits.run(seconds, PROBE)
            if not console.is_alive:
                return [*visits.found, f"seed {seed}: the console has died"]
            if console.peak_bytes() > memory_limit_bytes():
                visits.found.append(f"seed {seed}: the console took more memory than its manifest gives it")
            if "page.failed" in console.log_text or "Traceback" in console.log_text:
                visits.found.append(f"seed {seed}: the console failed: {console.log_text[-2000:]}")
    return visits.found

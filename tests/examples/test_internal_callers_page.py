"""The page on internal callers: its client is run as it is printed, with the stubs that the package brings."""

import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cli.connection import ServiceStubs, running_services
from cli.supervision.health import grpc_is_serving
from services.chassis.rpc.channel import open_sync_channel
from services.chassis.telemetry.log import Log
from tests.support.certificates import Authority
from tests.support.servers.child import start_child
from tests.support.servers.ports import free_port
from tests.support.service import ROUTES, UpstreamThread
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internal-callers.md"
CREDIT_NANOS = 10**9
# What the upstream usually says that it used, at the price of class mezzo.
CHAT_NANOS = 11 * 100 + 7 * 210


@dataclass
class InternalServicesHarness:
    """Auth, router and metering on TCP, for those with a certificate."""

    folder: Path
    environ: dict[str, str]
    authority: Authority

    def environ_of(self, identity: str) -> dict[str, str]:
        certificate, key = self.authority.files(identity)
        authority = certificate.with_name("ca.pem")
        tls = {"LEGATO_TLS_CA": str(authority), "LEGATO_TLS_CERT": str(certificate), "LEGATO_TLS_KEY": str(key)}
        return self.environ | tls


@pytest.fixture(scope="module")
def harness() -> Iterator[InternalServicesHarness]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    processes = []
    with UpstreamThread() as upstream:
        routes = folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=upstream.base_url))
        environ = {
            "LEGATO_DATA": str(folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
        }
        harness = InternalServicesHarness(folder, environ, Authority(folder / "certs"))
        for service in ("auth", "router", "metering"):
            environ[f"LEGATO_{service.upper()}_ADDRESS"] = f"127.0.0.1:{free_port()}"
        for service in ("auth", "router", "metering"):
            own = {
                f"LEGATO_{service.upper()}_LISTEN": environ[f"LEGATO_{service.upper()}_ADDRESS"],
                f"LEGATO_{service.upper()}_HEALTH_LISTEN": f"unix:{folder}/{service}.sock",
            }
            command = [sys.executable, "-m", f"services.{service}"]
            log = folder / f"{service}.log"
            environ_of = harness.environ_of(service) | own
            processes.append(start_child(command, log, last_signal=signal.SIGKILL, environ=environ_of))
        for service in ("auth", "router", "metering"):
            wait_until(lambda service=service: grpc_is_serving(f"unix:{folder}/{service}.sock"))  # type: ignore[misc]
        yield harness
        for process in processes:
            process.kill()
            process.wait(WAIT_TIMEOUT_S)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def services(harness: InternalServicesHarness) -> Iterator[ServiceStubs]:
    services = running_services(harness.folder, harness.environ_of("admin"))
    yield services
    services.close()


def test_callers_and_admins_can_look_around(harness: InternalServicesHarness, log: Log) -> None:
    for identity in ("caller/reports", "admin"):
        tls = harness.authority.certificates(identity, log).current()
        with open_sync_channel(harness.environ["LEGATO_METERING_ADDRESS"], tls, "metering") as channel:
            found: Any = ProtoReflectionDescriptorDatabase(channel)
            assert "legato.metering.v1.MeteringService" in found.get_services()
            [service] = found.FindFileContainingSymbol("legato.metering.v1.MeteringService").service[:1]
            assert "GetBalance" in {method.name for method in service.method}

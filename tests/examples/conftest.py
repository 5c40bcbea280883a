"""One service for all examples: `legato up` with its unix socket, and beside it an edge on TCP with certificates."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE
from cli.supervision.health import is_listening
from tests.support.certificates import Authority
from tests.support.servers.child import start_child
from tests.support.servers.ports import free_port
from tests.support.service import NEVER_SATURATED, Service, UpstreamThread
from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

CALL = {"index": 0, "id": "call_1", "type": "function"}
ANSWERS = {
    "How is the weather in Paris?": Reply(
        contents=[],
        tool_calls=[
            {**CALL, "function": {"name": "get_weather", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"city":'}},
            {"index": 0, "function": {"arguments": '"Paris"}'}},
        ],
        finish_reason="tool_calls",
    ),
    "Rain in Paris, 11 °C": Reply(contents=["It", " rains."]),
    # Behind the role and the first word comes nothing more.
    "Tell me a long story.": Reply(contents=["Once", " upon"], stall_after=2),
    "Think for a long time.": Reply(delay_s=WAIT_TIMEOUT_S),
}


class AnsweringUpstream(Upstream):
    """Chooses the answer by the last message, so that examples can run at the same time."""

    def reply_to(self, recorded: Recorded) -> Reply:
        return ANSWERS.get(recorded.json["messages"][-1]["content"], self.default_reply)


@dataclass(frozen=True)
class ExampleService:
    service: Service
    upstream: Upstream
    authority: Authority
    tcp_address: str

    def environ(self, transport: str) -> dict[str, str]:
        """What a program needs to know of the service, on "unix" or on "tcp"."""
        if transport == "unix":
            return {"LEGATO_ADDRESS": f"unix:{self.service.data}/run/chat.sock"}
        return {"LEGATO_ADDRESS": self.tcp_address, **tls_settings(self.authority, "caller/reports")}


@pytest.fixture(scope="package")
def example_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleService]:
    folder = tmp_path_factory.mktemp("tcp")
    authority = Authority(folder / "certs")
    with UpstreamThread(AnsweringUpstream()) as upstream, Service(upstream) as service:
        tcp_address = f"127.0.0.1:{free_port()}"
        health = service.data / "run" / "tcp-edge.sock"
        own = {
            "LEGATO_DATA": str(service.data),
            "LEGATO_EDGE_PORT": str(free_port()),
            "LEGATO_EDGE_HEALTH_LISTEN": f"unix:{health}",
            "LEGATO_EDGE_RPC_LISTEN": tcp_address,
        }
        foreign = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        environ = {**GRPC_WITHOUT_EVENT_ENGINE, **foreign, **NEVER_SATURATED, **own, **tls_settings(authority, "edge")}
        log = folder / "edge.log"
        edge = start_child([sys.executable, "-m", "edge"], log, last_signal=signal.SIGKILL, environ=environ)

        def is_serving() -> bool:
            assert edge.poll() is None, log.read_text()
            return is_listening(health)

        try:
            wait_until(is_serving)
            yield ExampleService(service, upstream, authority, tcp_address)
        finally:
            edge.terminate()
            edge.wait(WAIT_TIMEOUT_S)


def tls_settings(authority: Authority, identity: str) -> dict[str, str]:
    certificate, key = authority.files(identity)
    paths: dict[str, Path] = {"CA": authority.folder / "ca.pem", "CERT": certificate, "KEY": key}
    return {f"LEGATO_TLS_{name}": str(path) for name, path in paths.items()}

"""The compose file's balancer: whom it says a request is from, and how many edges it finds."""

import os
import re
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from edge.settings import EdgeSettings
from tests.support.servers.debian import find_program
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
BALANCER = (ROOT / "deploy" / "compose" / "balancer.cfg").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()
# Of edges and of consoles.
PUBLIC = ("8080", "8081")
PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


class Edge(BaseHTTPRequestHandler):
    """Says whom it was asked for."""

    def do_GET(self) -> None:
        said = ", ".join(self.headers.get_all("X-Forwarded-For", [])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def edge_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Edge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@contextmanager
def balanced(folder: Path, edge_port: int, front_proxy: str, public: str) -> Iterator[str]:
    """The configuration as it is, on ports that are free, before one edge or console that is found without a name
    service. `public` is the port that is asked."""
    ports = {name: free_port() for name in PUBLIC}
    port = ports[public]
    configuration = re.sub(r"bind :(\d+)", lambda found: f"bind 127.0.0.1:{ports[found[1]]}", BALANCER)
    configuration = re.sub(r"server-template (\w+) .*", rf"server \1 127.0.0.1:{edge_port}", configuration)
    file = folder / "balancer.cfg"
    file.write_text(configuration)
    haproxy = find_program("haproxy", *PACKAGES)
    environ = os.environ | haproxy.environ | {"LEGATO_FRONT_PROXY": front_proxy}
    running = subprocess.Popen([haproxy.path, "-f", str(file)], env=environ)
    try:
        wait_until(lambda: is_listened_on(port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.kill()
        running.wait()


def is_listened_on(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def asked_for(url: str, *, forwarded: str) -> str:
    request = urllib.request.Request(url, headers={"X-Forwarded-For": forwarded} if forwarded else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        said: str = answer.read().decode()
    return said


def test_the_balancer_says_itself_who_asks() -> None:
    assert "option forwardfor" not in BALANCER
    frontends = BALANCER.split("frontend ")[1:]
    assert len(frontends) == len(PUBLIC)
    for frontend in frontends:
        [*_, last] = re.findall("^ +http-request (.+)$", frontend, re.MULTILINE)
        assert last == "set-header X-Forwarded-For %[var(txn.client)]"


def test_there_is_a_place_for_as_many_edges_as_may_be_set() -> None:
    [limit] = re.findall(r"LEGATO_EDGES .*at most (\d+)", COMPOSE)
    assert set(re.findall(r"server-template edge (\d+) ", BALANCER)) == {limit}
    # Twelve bytes of head, some for the question, and sixteen for each address.
    [payload_bytes] = re.findall(r"accepted_payload_size (\d+)", BALANCER)
    assert int(payload_bytes) > 12 + 64 + 16 * int(limit)


def test_the_balancer_waits_for_an_answer_as_long_as_it_may_take() -> None:
    """One that is not streamed sends nothing until its end."""
    for side in ("client", "server"):
        [minutes] = re.findall(rf"timeout {side} (\d+)m$", BALANCER, re.MULTILINE)
        assert int(minutes) * 60 > EdgeSettings().stream_life_s
    # Where it can be changed.
    assert "LEGATO_STREAM_LIFE_S" not in COMPOSE


def test_a_proxy_in_front_is_believed_only_where_that_is_set() -> None:
    balancer = YAML(typ="safe").load(COMPOSE)["services"]["balancer"]
    assert balancer["environment"] == {"LEGATO_FRONT_PROXY": "${LEGATO_FRONT_PROXY:-127.0.0.1}"}


@pytest.mark.parametrize("public", PUBLIC)
@pytest.mark.parametrize("forwarded", ["", "203.0.113.9", "203.0.113.9, 10.0.0.1", "anything"])
def test_what_a_client_writes_of_itself_is_not_passed_on(
    tmp_path: Path, edge_port: int, public: str, forwarded: str
) -> None:
    with balanced(tmp_path, edge_port, "192.0.2.1", public) as url:
        assert asked_for(url, forwarded=forwarded) == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "told"),
    [("", "127.0.0.1"), ("203.0.113.9", "203.0.113.9"), ("127.0.0.1, 10.1.2.3", "10.1.2.3"), ("anything", "127.0.0.1")],
)
@pytest.mark.parametrize("public", PUBLIC)
def test_a_proxy_in_front_says_for_whom_it_asks(
    tmp_path: Path, edge_port: int, public: str, forwarded: str, told: str
) -> None:
    with balanced(tmp_path, edge_port, "127.0.0.0/8", public) as url:
        assert asked_for(url, forwarded=forwarded) == told

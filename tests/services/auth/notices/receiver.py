"""A receiver of webhooks: a real server that verifies signatures as owners would, and may misbehave."""

import contextlib
import hashlib
import hmac
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from services.auth.notices.rules.webhook_client import SIGNATURE_HEADER

Behaviour = int | Literal["hang", "drip", "garbage", "close"]
PATIENCE_S = 60


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Webhooks of many accounts connect at once; the default of five is too few on a busy machine.
    request_queue_size = 128


class Receiver:
    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        """Speaks plain HTTP without a certificate."""
        self.secrets: dict[str, str] = {}
        self.bodies: list[dict[str, Any]] = []
        self.contents: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        # Of the next requests; then 204.
        self.behaviours: list[Behaviour] = []
        # Paths on which no request is ever answered, and those of requests that wait there.
        self.silent_paths: set[str] = set()
        self.waiting_paths: list[str] = []
        self._ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"receiver": self}))
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            # The handshake is made in the request's own thread.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)

    def is_signed(self, path: str, header: str, body: bytes) -> bool:
        parts = dict(part.split("=", 1) for part in header.split(","))
        secret = self.secrets[path].encode()
        expected = hmac.new(secret, f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected, parts["v1"])


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        behaviour = self.receiver.behaviours.pop(0) if self.receiver.behaviours else 204
        if self.path in self.receiver.silent_paths:
            self.receiver.waiting_paths.append(self.path)
            behaviour = "hang"
        if not self.receiver.is_signed(self.path, self.headers[SIGNATURE_HEADER], body):
            behaviour = 401
        if behaviour == 204:
            self.receiver.contents.append(body)
            self.receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.receiver.bodies.append(json.loads(body))
        if isinstance(behaviour, int):
            self._answer(behaviour)
        elif behaviour == "hang":
            self.receiver._ending.wait(PATIENCE_S)
        elif behaviour == "drip":
            self._drip()
        elif behaviour == "garbage":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("location", f"{self.receiver.url}/elsewhere")
        self.end_headers()

    def _drip(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.receiver._ending.wait(0.05):
                self.wfile.write(b"x: y\r\n")

    def log_message(self, *parts: Any) -> None:
        pass

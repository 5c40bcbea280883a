"""HTTP without a client's manners: what is sent is what the test says, byte for byte."""

import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.waiting import WAIT_TIMEOUT_S

CHAT = "/v1/chat/completions"
ERROR_KEYS = {"message", "type", "param", "code"}


class Served(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error's fields; whatever is no error of the one shape fails the test."""
        assert self.headers["content-type"] == "application/json"
        body = self.json
        assert body.keys() == {"error"}
        error: dict[str, Any] = body["error"]
        assert error.keys() == ERROR_KEYS
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        return error

    @property
    def events(self) -> list[Any]:
        """The events of a stream, each one line; `[DONE]` as it is."""
        lines = self.body.decode().split("\n\n")
        assert lines.pop() == ""
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        return [line if line == "[DONE]" else json.loads(line) for line in (line[6:] for line in lines)]


def ask(
    service: Served,
    method: str,
    path: str,
    api_key: str = "",
    body: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    connection = http.client.HTTPConnection(*service.address, timeout=WAIT_TIMEOUT_S)
    authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        connection.request(method, path, body, {**authorization, **(headers or {})})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


def post_chat(
    service: Served, api_key: str, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    return ask(
        service,
        "POST",
        CHAT,
        api_key,
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )


def send_bytes(service: Served, sent: bytes) -> Answer:
    """Sends on a new connection; reads the answer as HTTP."""
    with socket.create_connection(service.address, timeout=WAIT_TIMEOUT_S) as connection:
        connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())


class OpenChat:
    """A chat whose client can leave whenever the test likes."""

    def __init__(
        self,
        service: Served,
        api_key: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        hesitates: bool = False,
        receive_buffer_bytes: int = 0,
        path: str = CHAT,
    ) -> None:
        """One that hesitates waits to be asked for its body, which `send_body` sends. With a small receive buffer,
        little is on its way to a client that does not read."""
        further = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if hesitates:
            further += "Expect: 100-continue\r\n"
        self._body = json.dumps(body).encode()
        self._socket = socket.socket()
        self._socket.settimeout(WAIT_TIMEOUT_S)
        if receive_buffer_bytes:
            # Before the connection is made, or its window has been told already.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.connect(service.address)
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {api_key}\r\n"
            f"Content-Type: application/json\r\n{further}Content-Length: {len(self._body)}\r\n\r\n".encode()
        )
        self._socket.sendall(self._head)
        self.received = b""
        if not hesitates:
            self.send_body()

    def send_body(self) -> None:
        self._socket.sendall(self._body)

    def ask_again(self) -> None:
        """The same, before it has its answer."""
        self._socket.sendall(self._head + self._body)

    def read_until(self, text: bytes) -> None:
        while text not in self.received:
            piece = self._socket.recv(65536)
            assert piece, f"the connection ended after {self.received!r}"
            self.received += piece

    def read_to_end(self) -> None:
        """Until the other side ends the connection, or breaks it."""
        with contextlib.suppress(ConnectionResetError):
            while piece := self._socket.recv(65536):
                self.received += piece

    def half_close(self) -> None:
        """Send no more, and wait for the answer."""
        self._socket.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Leave as one who was killed: without a word of farewell."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

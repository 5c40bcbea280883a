"""A complete answer that a connection writes by itself, without the application."""

from http import HTTPStatus
from typing import NamedTuple

from services.chassis.http.asgi import Headers


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes

    def rendered(self) -> bytes:
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (self.status, HTTPStatus(self.status).phrase.encode(), head, self.body)

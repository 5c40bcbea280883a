"""What is read of a request before its body."""

from edge.head import LARGEST_HEADERS_BYTES
from tests.edge.hello_server import exchange, is_error_shape


async def test_endless_headers_are_refused(port: int) -> None:
    head, body = await exchange(port, b"GET / HTTP/1.1\r\nx: " + b"y" * 2 * LARGEST_HEADERS_BYTES + b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)

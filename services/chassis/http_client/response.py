"""Parses the responses of one connection, and limits what a server may send around them."""

import httptools

from services.chassis.http_client.failures import InvalidResponse

# Limit on the response head, interim responses included.
LARGEST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 256
# Limits on framing after the head (chunk sizes, extensions, trailers): bytes without any body in between, and in total
# per byte of the body, as if every chunk had one byte and a long size.
LARGEST_FRAMING_BYTES = 2 * LARGEST_HEAD_BYTES
MOST_FRAMING_PER_BODY_BYTE = 16


class ResponseReader:
    def __init__(self) -> None:
        # What of the body has arrived and was not taken yet. It stays one list, to which the parser appends.
        self.received: list[bytes] = []
        self.on_body = self.received.append
        self._parser = httptools.HttpResponseParser(self)
        self.begin(is_asked=False)

    def begin(self, *, is_asked: bool) -> None:
        """Forgets the previous response; `is_asked` if another is awaited."""
        # Status of the response: 0 until its head is complete.
        self.status = 0
        # With names in lower case.
        self.headers: list[tuple[bytes, bytes]] = []
        self.head_bytes = 0
        self.received.clear()
        self.received_bytes = 0
        # Bytes read since the request, those of the body, and those since the last body byte.
        self.read_bytes = 0
        self.body_bytes = 0
        self.bytes_without_body = 0
        self.is_chunked = False
        # Whether the server lets the connection be used again.
        self.keeps_alive = not is_asked
        # The response is complete.
        self.is_whole = not is_asked

    def feed(self, data: bytes) -> None:
        """Raises InvalidResponse."""
        pieces = len(self.received)
        try:
            if self.status:
                self._feed_body(data)
            else:
                self._feed_head(data)
            body_bytes = sum(map(len, self.received[pieces:]))
            self.received_bytes += body_bytes
            self.body_bytes += body_bytes
            self.read_bytes += len(data)
            if not body_bytes or self.read_bytes > LARGEST_FRAMING_BYTES:
                self._check_framing(len(data), has_body=body_bytes > 0)
            else:
                self.bytes_without_body = 0
        except (InvalidResponse, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # The parser wraps an exception from a callback in its own.
            refusal = error if isinstance(error, InvalidResponse) else error.__context__
            raise (refusal if isinstance(refusal, InvalidResponse) else InvalidResponse()) from None

    def take(self) -> bytes:
        """Returns what of the body has arrived since the last time."""
        received = self.received
        taken = received[0] if len(received) == 1 else b"".join(received)
        received.clear()
        self.received_bytes = 0
        return taken

    def end(self) -> None:
        """Records the end of the connection, which ends a response without a length."""
        if self.status and not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
            self.is_whole = True

    def close(self) -> None:
        """Breaks the reference cycle, so that this is freed without the garbage collector."""
        del self._parser

    def header(self, name: bytes) -> str:
        """Returns a header's value by its lower-case name; empty if missing."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    def _feed_head(self, data: bytes) -> None:
        """Feeds the parser while the head is incomplete, and enforces the limit on the head alone."""
        left_bytes = LARGEST_HEAD_BYTES - self.head_bytes
        head = data[:left_bytes]
        self.head_bytes += len(head)
        if head:
            self._parser.feed_data(head)
        if len(data) > left_bytes:
            if not self.status:
                raise InvalidResponse("sent an endless head")
            self._parser.feed_data(data[left_bytes:])

    def _feed_body(self, data: bytes) -> None:
        """Feeds the parser what follows the head."""
        self._parser.feed_data(data)

    def _check_framing(self, read_bytes: int, *, has_body: bool) -> None:
        self.bytes_without_body = 0 if has_body else self.bytes_without_body + read_bytes
        most_bytes = LARGEST_FRAMING_BYTES + MOST_FRAMING_PER_BODY_BYTE * self.body_bytes
        if self.bytes_without_body > LARGEST_FRAMING_BYTES or self.read_bytes - self.body_bytes > most_bytes:
            raise InvalidResponse("sent too much around its answer")

    # The parser calls these.
    def on_message_begin(self) -> None:
        if self.is_whole:
            raise InvalidResponse("sent a second answer to one question")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            # Trailers are ignored.
            return
        if len(self.headers) >= MOST_HEADERS:
            raise InvalidResponse("sent an endless head")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if not self._parser.get_http_version().startswith("1."):
            raise InvalidResponse
        encodings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if encodings and encodings != [b"chunked"]:
            # Other transfer encodings were not requested and are not supported.
            raise InvalidResponse
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.is_chunked = bool(encodings)
        else:
            # An interim response: the final one follows.
            self.headers.clear()

    def on_message_complete(self) -> None:
        if self.status and not self.is_whole:
            self.is_whole = True
            self.keeps_alive = self._parser.should_keep_alive()

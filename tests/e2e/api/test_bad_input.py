"""Whatever is sent, the answer is HTTP, in the error shape, and about what was wrong."""

import json

import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import CHAT, ask, post_chat, send_bytes
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream

USER = b'{"role":"user","content":"Hi"}'


def _with_messages(messages: str) -> bytes:
    return b'{"messages":' + messages.encode() + b"}"


def _with(fields: str) -> bytes:
    return b'{"messages":[%b],%b}' % (USER, fields.encode())


BODIES = {
    "nothing": b"",
    "no JSON": b"hello",
    "cut off": b'{"messages":[',
    "two values": b'{"messages":[%b]} {}' % USER,
    "an array": b"[]",
    "a number": b"7",
    "null": b"null",
    "bad UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "cut UTF-8": b'{"messages":[{"role":"user","content":"\xc3"}]}',
    "UTF-16": json.dumps({"messages": QUESTION}).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + b'{"messages":[%b]}' % USER,
    "lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "NaN": _with('"temperature":NaN'),
    "Infinity": _with('"temperature":Infinity'),
    "huge number": _with('"temperature":1e999'),
    "control character": b'{"messages":[{"role":"user","content":"\x00"}]}',
    "deep arrays": b"[" * 200_000,
    "deep messages": _with_messages("[" * 100_000 + "]" * 100_000),
    "deep objects": _with('"metadata":' + '{"a":' * 100_000 + "1" + "}" * 100_000),
    "deep ignored field": _with('"ignored":' + "[" * 100_000 + "]" * 100_000),
    "no messages": b"{}",
    "messages null": _with_messages("null"),
    "messages empty": _with_messages("[]"),
    "messages a text": _with_messages('"Hi"'),
    "message a text": _with_messages('["Hi"]'),
    "message null": _with_messages("[null]"),
    "no role": _with_messages('[{"content":"Hi"}]'),
    "unknown role": _with_messages('[{"role":"robot","content":"Hi"}]'),
    "role a number": _with_messages('[{"role":1,"content":"Hi"}]'),
    "no content": _with_messages('[{"role":"user"}]'),
    "content null": _with_messages('[{"role":"user","content":null}]'),
    "content a number": _with_messages('[{"role":"user","content":7}]'),
    "content without parts": _with_messages('[{"role":"user","content":[]}]'),
    "part of another type": _with_messages(
        '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]'
    ),
    "part without text": _with_messages('[{"role":"user","content":[{"type":"text"}]}]'),
    "tool message without an id": _with_messages('[{"role":"tool","content":"7"}]'),
    "tool call without a function": _with_messages(
        '[{"role":"assistant","tool_calls":[{"id":"a","type":"function"}]}]'
    ),
    "arguments an object": _with_messages(
        '[{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{}}}]}]'
    ),
    "model a number": _with('"model":7'),
    "stream a text": _with('"stream":"yes"'),
    "temperature a text": _with('"temperature":"hot"'),
    "temperature too high": _with('"temperature":2.1'),
    "max_tokens zero": _with('"max_tokens":0'),
    "max_tokens half": _with('"max_tokens":1.5'),
    "max_tokens endless": _with('"max_tokens":1e308'),
    "n two": _with('"n":2'),
    "logprobs": _with('"logprobs":true'),
    "tools an object": _with('"tools":{}'),
    "tool without a function": _with('"tools":[{"type":"function"}]'),
    "tool of another type": _with('"tools":[{"type":"web_search"}]'),
    "tool without a name": _with('"tools":[{"type":"function","function":{}}]'),
    "tool_choice of nothing": _with('"tool_choice":{"type":"function","function":{"name":"f"}}'),
    "tool_choice unheard of": _with('"tool_choice":"perhaps"'),
    "response_format unheard of": _with('"response_format":{"type":"yaml"}'),
}
# They are unusual, and there is nothing wrong with them.
FINE = ["max_tokens endless", "deep ignored field"]


@pytest.mark.parametrize("what", [what for what in BODIES if what not in FINE])
def test_body_that_is_wrong_is_400(service: Service, upstream: Upstream, api_key: str, what: str) -> None:
    answer = post_chat(service, api_key, BODIES[what])
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert len(answer.headers["x-request-id"]) == 32
    assert upstream.requests == []


@pytest.mark.parametrize("what", FINE)
def test_unusual_body_is_no_failure_of_ours(service: Service, upstream: Upstream, api_key: str, what: str) -> None:
    answer = post_chat(service, api_key, BODIES[what])
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_body_is_json_whatever_its_type_says(
    service: Service, upstream: Upstream, api_key: str, content_type: str
) -> None:
    body = json.dumps({"messages": QUESTION}).encode()
    assert ask(service, "POST", CHAT, api_key, body, {"Content-Type": content_type}).status == 200
    form = ask(service, "POST", CHAT, api_key, b"messages=Hi", {"Content-Type": content_type})
    assert form.status == 400
    assert form.error["type"] == "invalid_request_error"


def test_compressed_body_is_415(service: Service, api_key: str) -> None:
    answer = ask(service, "POST", CHAT, api_key, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert answer.status == 415
    assert answer.error["code"] == "unsupported_encoding"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/models", 404),
        ("GET", "/redoc", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/%00", 404),
        ("GET", "/v1/models/%ff", 404),
        ("GET", "/v1/models/a/b", 404),
        ("GET", "/v1/%2e%2e/v1/models", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/completions", 404),
        ("POST", "/v1/audio/speech", 404),
        ("GET", CHAT, 405),
        ("PUT", CHAT, 405),
        ("DELETE", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/forte", 405),
        ("POST", "/v1/usage", 405),
    ],
)
def test_what_is_not_there_is_told_in_the_error_shape(
    service: Service, api_key: str, method: str, path: str, status: int
) -> None:
    answer = ask(service, method, path, api_key)
    assert answer.status == status
    assert answer.error["type"] == "invalid_request_error"
    assert len(answer.headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/completions"),
        ("GET", CHAT),
        ("DELETE", CHAT),
        ("POST", "/v1/models"),
        ("DELETE", "/v1/models/forte"),
        ("POST", "/v1/usage"),
    ],
)
@pytest.mark.parametrize("api_key", ["", "sk-legato-wrong"])
def test_every_endpoint_asks_for_the_key_first(service: Service, api_key: str, method: str, path: str) -> None:
    answer = ask(service, method, path, api_key)
    assert answer.status == 401
    assert answer.error["type"] == "authentication_error"


def test_where_there_is_no_endpoint_no_key_is_asked_for(service: Service) -> None:
    assert ask(service, "GET", "/v1/nothing").status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST, OPTIONS"),
        ("POST", "/v1/models", "GET, OPTIONS"),
        ("DELETE", "/v1/models/forte", "GET, OPTIONS"),
        ("GET", "/v1/embeddings", "POST, OPTIONS"),
    ],
)
def test_who_uses_another_method_is_told_the_right_one(
    service: Service, api_key: str, method: str, path: str, allowed: str
) -> None:
    answer = ask(service, method, path, api_key)
    assert answer.status == 405
    assert answer.headers["allow"] == allowed


def _request(*headers: str, path: str = "/v1/models", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /v1/models\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
        # Careless, though it can be read: so it is refused for what it lacks.
        (b"GET  /v1/models HTTP/1.1\r\nHost: test\r\n\r\n", 401),
        (b"GET /v1/models HTTP/9.9\r\nHost: test\r\n\r\n", 400),
        (b"\x00" * 1000, 400),
        (_request("Content-Length: -1", method="POST", path=CHAT), 400),
        (_request("Content-Length: many", method="POST", path=CHAT), 400),
        (_request("Content-Length: 5", "Content-Length: 6", method="POST", path=CHAT), 400),
        (_request("Content-Length: 5", "Transfer-Encoding: chunked", method="POST", path=CHAT) + b"0\r\n\r\n", 400),
        (_request("no colon here"), 400),
        (_request(*(f"X-{number}: {'x' * 1000}" for number in range(200))), 400),
        (_request(f"Authorization: Bearer {'x' * 100_000}"), 400),
        (_request(path="/" + "x" * 100_000), 400),
        (_request("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", path="/v1/socket"), 404),
        (_request("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"), 401),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
)
def test_what_is_no_proper_http_is_refused(service: Service, sent: bytes, status: int) -> None:
    answer = send_bytes(service, sent)
    assert answer.status == status
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.error["type"] in ("invalid_request_error", "authentication_error")


def test_chunk_that_is_no_chunk_is_refused(service: Service, api_key: str) -> None:
    head = _request(f"Authorization: Bearer {api_key}", "Transfer-Encoding: chunked", method="POST", path=CHAT)
    answer = send_bytes(service, head + b"zz\r\n")
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


def test_key_that_comes_after_the_body_is_no_key(service: Service, upstream: Upstream, api_key: str) -> None:
    body = b'{"messages":[%b]}' % USER
    trailer = f"Authorization: Bearer {api_key}\r\n\r\n".encode()
    head = _request("Transfer-Encoding: chunked", method="POST", path=CHAT)
    answer = send_bytes(service, head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailer)
    assert answer.status == 401
    assert upstream.requests == []


def test_chat_that_offers_another_protocol_is_answered_in_this_one(
    service: Service, upstream: Upstream, api_key: str
) -> None:
    """`curl --http2` and Java's client do so by themselves."""
    body = b'{"messages":[%b]}' % USER
    offer = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"]
    length = f"Content-Length: {len(body)}"
    head = _request(f"Authorization: Bearer {api_key}", *offer, length, method="POST", path=CHAT)
    assert send_bytes(service, head + body).status == 200

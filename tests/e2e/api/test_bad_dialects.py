"""Whatever is sent to Messages and to Responses, the answer is an error of that API, and no model is asked."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.operations import value_of
from tests.e2e.raw_http import Answer, OpenChat, ask, send_bytes
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

MESSAGES: Final = "/v1/messages"
COUNT: Final = "/v1/messages/count_tokens"
RESPONSES: Final = "/v1/responses"
MB: Final = 1024 * 1024
# Bodies that no API reads.
NO_REQUEST: Final = {
    "nothing": b"",
    "no JSON": b"hello",
    "cut off": b'{"messages":[',
    "two values": b"{} {}",
    "an array": b"[]",
    "a number": b"7",
    "null": b"null",
    "bad UTF-8": b'{"system":"\xff\xfe","instructions":"\xff\xfe"}',
    "UTF-16": json.dumps({"input": "Hi", "messages": []}).encode("utf-16"),
    "deep arrays": b"[" * 200_000,
    "deep objects": b'{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "no fields": b"{}",
}
HI: Final = {"role": "user", "content": "Hi"}
TOOL: Final = {"name": "f", "input_schema": {"type": "object"}}
WRONG_MESSAGES: Final[Mapping[str, Any]] = {
    "messages empty": {"messages": []},
    "messages a text": {"messages": "Hi"},
    "message null": {"messages": [None]},
    "unknown role": {"messages": [{"role": "tool", "content": "Hi"}]},
    "content a number": {"messages": [{"role": "user", "content": 7}]},
    "content without blocks": {"messages": [{"role": "user", "content": []}]},
    "block null": {"messages": [{"role": "user", "content": [None]}]},
    "block of another type": {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
    "block without text": {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    "lone surrogate": {"messages": [{"role": "user", "content": "\ud800"}]},
    "call of a user": {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}]},
    "call without input": {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
    "result of nothing": {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "a"}]}]},
    "system a number": {"messages": [HI], "system": 7},
    "tools an object": {"messages": [HI], "tools": {}},
    "tool without a schema": {"messages": [HI], "tools": [{"name": "f"}]},
    "tool with a bad name": {"messages": [HI], "tools": [{**TOOL, "name": "f\n"}]},
    "tool of a server": {"messages": [HI], "tools": [{"type": "bash_20250124", "name": "bash"}]},
    "tool_choice of nothing": {"messages": [HI], "tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
    "max_tokens zero": {"messages": [HI], "max_tokens": 0},
    "temperature a text": {"messages": [HI], "temperature": "hot"},
    "stop_sequences many": {"messages": [HI], "stop_sequences": ["a"] * 5},
    "thinking a text": {"messages": [HI], "thinking": "hard"},
    "model a number": {"messages": [HI], "model": 7},
}
CALL: Final = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
WRONG_RESPONSES: Final[Mapping[str, Any]] = {
    "input empty": {"input": []},
    "input a number": {"input": 7},
    "item null": {"input": [None]},
    "item of another type": {"input": [{"type": "item_reference", "id": "a"}]},
    "unknown role": {"input": [{"role": "robot", "content": "Hi"}]},
    "content a number": {"input": [{"role": "user", "content": 7}]},
    "part of another type": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
    "part without text": {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
    "lone surrogate": {"input": "\ud800"},
    "arguments an object": {"input": [{**CALL, "arguments": {}}]},
    "call without an id": {"input": [{**CALL, "call_id": None}]},
    "output of nothing": {"input": [{"type": "function_call_output", "output": "a"}]},
    "instructions a number": {"input": "Hi", "instructions": 7},
    "tools an object": {"input": "Hi", "tools": {}},
    "tool without a name": {"input": "Hi", "tools": [{"type": "function"}]},
    "tool of OpenAI's": {"input": "Hi", "tools": [{"type": "code_interpreter"}]},
    "namespace within another": {
        "input": "Hi",
        "tools": [{"type": "namespace", "name": "a", "tools": [{"type": "namespace", "name": "b", "tools": []}]}],
    },
    "tool_choice of nothing": {"input": "Hi", "tool_choice": {"type": "function", "name": "g"}},
    "max_output_tokens zero": {"input": "Hi", "max_output_tokens": 0},
    "temperature a text": {"input": "Hi", "temperature": "hot"},
    "something stored": {"input": "Hi", "previous_response_id": "resp_1"},
    "format unheard of": {"input": "Hi", "text": {"format": {"type": "yaml"}}},
    "reasoning a text": {"input": "Hi", "reasoning": "hard"},
    "model a number": {"input": "Hi", "model": 7},
}
WRONG: Final = {MESSAGES: WRONG_MESSAGES, COUNT: WRONG_MESSAGES, RESPONSES: WRONG_RESPONSES}


def error_of(path: str, answer: Answer) -> dict[str, Any]:
    """Returns an error, which has the shape of the path's API."""
    if path == RESPONSES:
        return answer.error
    body = answer.json
    assert (body["type"], body["request_id"]) == ("error", answer.headers["x-request-id"])
    error: dict[str, Any] = body["error"]
    assert error["message"]
    return error


@pytest.mark.parametrize("path", WRONG)
def test_body_that_is_wrong_is_400(service: Service, upstream: Upstream, api_key: str, path: str) -> None:
    bodies = {**NO_REQUEST, **{name: json.dumps(body).encode() for name, body in WRONG[path].items()}}
    for name, body in bodies.items():
        answer = ask(service, "POST", path, api_key, body)
        assert answer.status == 400, (name, answer.body)
        assert error_of(path, answer)["type"] == "invalid_request_error", name
    assert upstream.requests == []


@pytest.mark.parametrize("path", WRONG)
def test_body_that_is_too_large_or_compressed_is_refused(
    service: Service, upstream: Upstream, api_key: str, path: str
) -> None:
    headers = ["Host: test", f"Authorization: Bearer {api_key}", f"Content-Length: {16 * MB + 1}"]
    announced = send_bytes(service, "\r\n".join([f"POST {path} HTTP/1.1", *headers, "", ""]).encode())
    pieces = ask(service, "POST", path, api_key, (b"x" * MB for _ in range(17)))
    for answer in (announced, pieces):
        assert answer.status == 413
        assert error_of(path, answer)["code"] == "request_too_large"
    zipped = ask(service, "POST", path, api_key, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert (zipped.status, error_of(path, zipped)["code"]) == (415, "unsupported_encoding")
    assert upstream.requests == []


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
def test_many_small_elements_hold_nobody_up(service: Service, upstream: Upstream, api_key: str, path: str) -> None:
    """Either they are refused, or they reach the model."""
    elements = [{"type": "text" if path == MESSAGES else "input_text", "text": "a"}] * 50_000
    messages = [{"role": "user", "content": elements}]
    body = {"messages": messages} if path == MESSAGES else {"input": messages}
    answer = ask(service, "POST", path, api_key, json.dumps({"model": "mezzo", "max_tokens": 5, **body}).encode())
    assert answer.status in (200, 400)
    assert len(upstream.requests) == (answer.status == 200)


WELL: Final[Mapping[str, Any]] = {
    MESSAGES: {"model": "mezzo", "max_tokens": 100, "messages": [HI] * 3},
    COUNT: {"model": "mezzo", "messages": [HI] * 3},
    RESPONSES: {"model": "mezzo", "input": [HI] * 3},
}


@pytest.mark.parametrize("path", WELL)
def test_body_that_comes_a_byte_at_a_time_is_read(service: Service, api_key: str, path: str) -> None:
    body = json.dumps(WELL[path]).encode()

    def brought() -> Iterator[bytes]:
        for at in range(len(body)):
            time.sleep(0.002)
            yield body[at : at + 1]

    assert ask(service, "POST", path, api_key, brought()).status == 200


@pytest.mark.parametrize("path", WELL)
def test_client_that_leaves_within_its_body_holds_nothing(service: Service, upstream: Upstream, path: str) -> None:
    account = service.new_account()
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {service.new_key(account)}\r\n"
    with socket.create_connection(service.address, timeout=WAIT_TIMEOUT_S) as connection:
        connection.sendall(f"{head}Content-Length: {2 * MB}\r\n\r\n".encode() + b" " * MB)
        wait_until(lambda: value_of(service, "edge", "legato_prompt_bytes") >= MB // 2)
    wait_until(lambda: not value_of(service, "edge", "legato_prompt_bytes"))
    assert upstream.requests == []
    assert service.settled_balance_nanos(account) == 5 * 10**9
    assert service.holds(account) == []


@pytest.mark.parametrize("path", WELL)
def test_requests_that_come_before_the_last_is_answered_are_answered_in_turn(
    service: Service, api_key: str, path: str
) -> None:
    chat = OpenChat(service, api_key, WELL[path], {"Connection": "keep-alive"}, path=path)
    for _ in range(3):
        chat.ask_again()
    chat.half_close()
    chat.read_to_end()
    chat.leave()
    # One that sends no more is probed by answers that every client ignores.
    answers = [answer for answer in chat.received.split(b"HTTP/1.1 ")[1:] if not answer.startswith(b"100 ")]
    assert [answer[:4] for answer in answers] == [b"200 "] * 4
    bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert {body.get("model", "mezzo") for body in bodies} == {"mezzo"}


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
def test_client_that_reads_nothing_is_not_waited_for_by_others(
    service: Service, upstream: Upstream, api_key: str, path: str
) -> None:
    upstream.replies.append(Reply(contents=["word " * 200], repeat=2_000, usage=None))
    silent = OpenChat(service, api_key, {**WELL[path], "stream": True}, receive_buffer_bytes=4096, path=path)
    wait_for_requests(upstream)
    assert ask(service, "POST", path, api_key, json.dumps(WELL[path]).encode()).status == 200
    silent.reset()
    wait_until(lambda: not value_of(service, "edge", "legato_live_streams"))


def test_large_body_is_refused_unread_where_the_credit_cannot_pay_for_it(service: Service, upstream: Upstream) -> None:
    poor_key = service.new_key(service.new_account("0"))
    headers = ["Host: test", f"Authorization: Bearer {poor_key}", f"Content-Length: {16 * MB}"]
    for path in (MESSAGES, RESPONSES):
        answer = send_bytes(service, "\r\n".join([f"POST {path} HTTP/1.1", *headers, "", ""]).encode())
        assert (answer.status, error_of(path, answer)["code"]) == (402, "insufficient_quota")
    assert upstream.requests == []

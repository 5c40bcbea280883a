"""The load and the mock upstream agree with each other, and the load checks every answer."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.chats import AnswersWrong, Case, Outcome, encode_request, encode_requests, put_load, started_upstream
from bench.conversations import BYTES_A_TOKEN, Conversation
from bench.report import Progress
from bench.targets import direct, port_of

pytestmark = pytest.mark.long

WHOLE = Case("whole", in_flight=3)
STREAMED = Case("streamed", in_flight=3, chunks=7)
PACED = Case("paced", in_flight=3, chunks=7, pause_us=2_000)
CHUNK = 'data: {"choices":[{"delta":{"content":"00000"}}]}\n\n'


@pytest.mark.parametrize("case", [WHOLE, STREAMED, PACED], ids=lambda case: case.name)
def test_every_chat_is_answered_once_and_counted(case: Case, tmp_path: Path, progress: Progress) -> None:
    with started_upstream(tmp_path) as upstream:
        outcome = direct(upstream).put_load(case, tmp_path, progress, chats=10)
        assert upstream.chats() == outcome.started == outcome.answered == 10
    assert (outcome.refused, outcome.chunks) == (0, 10 * case.chunks)
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (10 * 50, 10 * (case.chunks or 45))
    assert outcome.connections == case.in_flight
    assert (outcome.first_ms is not None, outcome.late_ms is not None) == (case.chunks > 0, case.chunks > 0)


def test_paced_stream_takes_as_long_as_its_pauses(tmp_path: Path, progress: Progress) -> None:
    with started_upstream(tmp_path) as upstream:
        outcome = direct(upstream).put_load(PACED, tmp_path, progress, chats=3)
    assert outcome.whole_ms is not None
    assert outcome.whole_ms.p50 >= (PACED.chunks - 1) * PACED.pause_us / 1000


@pytest.mark.parametrize(
    ("case", "status", "body"),
    [
        (WHOLE, 200, '{"choices":[{"message":{"content":"Something else."}}]}'),
        (WHOLE, 500, "It broke."),
        (STREAMED, 200, CHUNK * 7),
        (STREAMED, 200, CHUNK * 6 + "data: [DONE]\n\n"),
        (STREAMED, 200, CHUNK * 8 + "data: [DONE]\n\n"),
    ],
    ids=["another answer", "an error", "no end", "a chunk is missing", "a chunk too many"],
)
def test_wrong_answer_is_noticed(case: Case, status: int, body: str, tmp_path: Path, progress: Progress) -> None:
    with pytest.raises(AnswersWrong), answering(status, body) as port:
        ask(case, port, tmp_path, progress)


def test_each_client_sends_the_turns_of_its_session_in_order_and_with_its_own_digits(
    tmp_path: Path, progress: Progress
) -> None:
    session = Conversation((10_000, 30_000, 400_000))
    case = Case("sessions", in_flight=2, chunks=3, conversation=session, sessions=2)
    with started_upstream(tmp_path) as upstream, recording(port_of(upstream.base_url)) as (port, requests):
        request = encode_requests(case, "key", "model", "/v1/chat/completions", {})
        outcome = put_load(case, port, request, tmp_path, progress, seconds=10)
    assert outcome.answered == 2 * 2 * 3
    assert outcome.prompt_tokens == sum(len(body) // BYTES_A_TOKEN for body in requests)
    turns: dict[str, list[list[object]]] = {}
    for body in requests:
        assert b"%SESSION" not in body
        messages = json.loads(body)["messages"]
        [digits] = {message["content"].split(" ", 1)[0] for message in messages}
        turns.setdefault(digits, []).append(messages)
    assert len(turns) == 2 * 2
    for first, second, third in turns.values():
        assert (second[: len(first)], third[: len(second)]) == (first, second)
        assert len(first) < len(second) < len(third)


def test_known_prompts_differ_by_their_last_message(tmp_path: Path, progress: Progress) -> None:
    case = Case("known", in_flight=1, conversation=Conversation((20_000,), is_known=True))
    with started_upstream(tmp_path) as upstream, recording(port_of(upstream.base_url)) as (port, requests):
        request = encode_requests(case, "key", "model", "/v1/chat/completions", {})
        put_load(case, port, request, tmp_path, progress, seconds=10, chats=2)
    first, second = (json.loads(body) for body in requests)
    assert first["messages"].pop() != second["messages"].pop()
    assert first == second


def test_requests_at_an_interval_do_not_wait_for_nothing_nor_come_earlier(tmp_path: Path, progress: Progress) -> None:
    case = Case("steady", in_flight=2, every_us=40_000)
    with started_upstream(tmp_path) as upstream:
        outcome = direct(upstream).put_load(case, tmp_path, progress, seconds=0.4)
    # Ten intervals of two clients: fewer on a busy machine, never more.
    assert 2 <= outcome.answered <= 20


def test_refusals_are_counted_and_asked_again(tmp_path: Path, progress: Progress) -> None:
    with pytest.raises(AnswersWrong, match="0 were answered and 3 refused"), answering(429, "busy") as port:
        ask(Case("refused", in_flight=1), port, tmp_path, progress)


def ask(case: Case, port: int, folder: Path, progress: Progress) -> Outcome:
    request = encode_request(case, "key", "model", "/v1/chat/completions", {})
    return put_load(case, port, [request], folder, progress, seconds=10, chats=3)


@contextmanager
def recording(upstream_port: int) -> Iterator[tuple[int, list[bytes]]]:
    """Forwards requests, one after the other on each connection, and yields their bodies."""
    bodies: list[bytes] = []
    done = threading.Event()

    def forward(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", upstream_port)) as upstream:
            while request := read_request(client):
                head, body = request
                bodies.append(body)
                upstream.sendall(head + body)
                answer = b""
                while not answer.endswith((b"0\r\n\r\n", b"}")):
                    answer += upstream.recv(65536)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while not done.is_set():
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=forward, args=(client,)).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], bodies
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_request(client: socket.socket) -> tuple[bytes, bytes] | None:
    received = b""
    while b"\r\n\r\n" not in received:
        if not (more := client.recv(65536)):
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(65536)
    return head + b"\r\n\r\n", body


@contextmanager
def answering(status: int, body: str) -> Iterator[int]:
    """A server that gives everybody the same answer, and closes."""
    answer = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    if client.recv(65536):
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()

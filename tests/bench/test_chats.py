"""The load and the mock upstream agree with each other, and the load checks every answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.chats import AnswersWrong, Case, Outcome, encode_request, put_load, started_upstream
from bench.report import Progress
from bench.targets import direct

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


def test_refusals_are_counted_and_asked_again(tmp_path: Path, progress: Progress) -> None:
    with pytest.raises(AnswersWrong, match="0 were answered and 3 refused"), answering(429, "busy") as port:
        ask(Case("refused", in_flight=1), port, tmp_path, progress)


def ask(case: Case, port: int, folder: Path, progress: Progress) -> Outcome:
    request = encode_request(case, "key", "model", "/v1/chat/completions", {})
    return put_load(case, port, request, folder, progress, seconds=10, chats=3)


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

"""The chat workloads that every target gets, and the load generator that sends them (`bench/wire/load.c`)."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import msgspec

from bench.children import TOKENS_A_CHUNK, printed_address, program
from bench.conversations import Conversation, tools
from bench.report import Progress
from tests.support.servers.child import start_child
from tests.support.waiting import wait_until

# Typical lengths of a short question and its system prompt.
_INSTRUCTION: Final = "You are a helpful assistant."
_QUESTION: Final = (
    "how will the weather be tomorrow, here by the river and up in the hills, and should we rather stay at home?"
)
# The slowest gateway takes about twenty seconds for what others finish at once.
TIMEOUT_S: Final = 60.0
# The longest that the sessions of a case may take.
SESSIONS_S: Final = 120.0


class Case(msgspec.Struct, frozen=True):
    name: str
    in_flight: int
    # Number of chunks of a stream; 0: the response is not streamed.
    chunks: int = 0
    # Delay between chunks; 0: the provider writes all of them at once.
    pause_us: int = 0
    # None: a short question.
    conversation: Conversation | None = None
    # How many sessions each client has; 0: as many as the time allows.
    sessions: int = 0
    # The interval at which each client's requests begin; 0: when the last one is answered.
    every_us: int = 0
    # The rest of each client after an answer.
    rest_us: int = 0

    @property
    def ramp_us(self) -> int:
        """The time over which clients start: that of one paced stream or one interval, so that they do not act at the
        same times."""
        return self.every_us or self.chunks * self.pause_us


class Percentiles(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    max: float


class Outcome(msgspec.Struct, frozen=True):
    """The load generator's report. All answers were correct."""

    started: int
    answered: int
    refused: int
    chunks: int
    connections: int
    # Token counts that the responses reported.
    prompt_tokens: int
    completion_tokens: int
    chats_per_s: float
    chunks_per_s: float
    cpu_s: float
    failures: dict[str, int]
    failed_status: int
    failed_body: str
    whole_ms: Percentiles | None
    first_ms: Percentiles | None
    # Time from the provider's write of a chunk to the client's read.
    late_ms: Percentiles | None


class AnswersWrong(Exception):
    """A chat got no answer, or not the one that the provider wrote: the run's figures are worthless."""


class Upstream(msgspec.Struct, frozen=True):
    """The mock upstream."""

    base_url: str

    def chats(self) -> int:
        """Counts the chats that the upstream has received."""
        with urlopen(self.base_url.removesuffix("/v1") + "/stats", timeout=TIMEOUT_S) as response:
            chats: int = json.load(response)["chats"]
            return chats


@contextmanager
def started_upstream(folder: Path) -> Iterator[Upstream]:
    output = folder / "upstream.log"
    process = start_child([program("upstream")], output, last_signal=signal.SIGKILL)
    try:
        yield Upstream(wait_until(lambda: printed_address(output)))
    finally:
        process.kill()
        process.wait()


def request_body(case: Case, model: str) -> dict[str, object]:
    """Returns what every transport is asked."""
    return request_bodies(case, model)[0]


def request_bodies(case: Case, model: str) -> list[dict[str, object]]:
    """Returns the turns of a session, or the only request. The prompt tells the mock upstream its answer."""
    wish = f"chunks={case.chunks} pause_us={case.pause_us}" if case.chunks else ""
    most_tokens = max(256, TOKENS_A_CHUNK * case.chunks)
    if case.conversation is not None:
        return [
            {"model": model, "max_tokens": most_tokens, "messages": messages, "tools": tools()}
            for messages in case.conversation.turns(wish)
        ]
    messages = [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{wish} {_QUESTION}"},
    ]
    return [{"model": model, "messages": messages, "max_tokens": most_tokens}]


def encode_request(case: Case, api_key: str, model: str, path: str, headers: Mapping[str, str]) -> bytes:
    return encode_requests(case, api_key, model, path, headers)[0]


def encode_requests(case: Case, api_key: str, model: str, path: str, headers: Mapping[str, str]) -> list[bytes]:
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if case.chunks else {}
    return [_encode(case, chat | streamed, api_key, path, headers) for chat in request_bodies(case, model)]


def _encode(case: Case, chat: dict[str, object], api_key: str, path: str, headers: Mapping[str, str]) -> bytes:
    body = json.dumps(chat, separators=(",", ":")).encode()
    head = {
        "host": "bench",
        "authorization": f"Bearer {api_key}",
        "accept": "text/event-stream" if case.chunks else "application/json",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def put_load(
    case: Case,
    port: int,
    requests: Sequence[bytes],
    folder: Path,
    progress: Progress,
    *,
    seconds: float,
    chats: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> Outcome:
    """Sends chats for `seconds`, or until `chats` were sent or all sessions have ended, and calls `meanwhile`
    repeatedly."""
    output = folder / "load.json"
    output.unlink(missing_ok=True)
    sessions = 0 if chats else case.sessions
    options = {
        "port": port,
        "in-flight": case.in_flight,
        "seconds": SESSIONS_S if sessions else seconds,
        "chats": chats,
        "sessions": sessions,
        "every-us": case.every_us,
        "rest-us": case.rest_us,
        "chunks": case.chunks,
        "ramp-us": case.ramp_us,
        "timeout": TIMEOUT_S,
    }
    arguments = [argument for name, value in options.items() for argument in (f"--{name}", str(value))]
    for number, request in enumerate(requests):
        request_file = folder / f"request-{number}"
        # The request contains an API key.
        request_file.touch(mode=0o600)
        request_file.write_bytes(request)
        arguments += ["--request", str(request_file)]
    load = start_child([program("load"), *arguments], output, last_signal=signal.SIGKILL, environ=dict(os.environ))
    while load.poll() is None:
        progress.show()
        meanwhile()
        time.sleep(0.05)
    if load.returncode != 0:
        raise RuntimeError(f"The load did not come to its end:\n{output.read_text()}")
    outcome = msgspec.json.decode(output.read_bytes(), type=Outcome)
    if any(outcome.failures.values()) or not outcome.answered:
        raise AnswersWrong(
            f"{case.name}: of {outcome.started} chats {outcome.answered} were answered and {outcome.refused} refused;"
            f" failures: {outcome.failures} {outcome.failed_status or ''} {outcome.failed_body}"
        )
    return outcome

"""Measures how long a provider's connection stays open after the client has disconnected.

Clients and the provider use real sockets. The last case is an attempt that the router itself abandons; it is measured
from the moment of the timeout.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from bench.processors import Watch
from bench.report import Progress, Row, percentile
from tests.e2e.raw_http import OpenChat
from tests.support.service import ROUTES, Service, UpstreamThread, wait_for_requests
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.waiting import wait_until

MEASUREMENT: Final = "cancellation"
PROMISED_MS: Final = 250.0
# A prompt this large is sent to the router separately.
BIG_PROMPT_BYTES: Final = 400_000
FIRST_BYTE_S: Final = 0.2

SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "VENDOR_KEY": "played",
}
QUESTION: Final = [{"role": "user", "content": "How is the weather in Paris?"}]
LONG_QUESTION: Final = [{"role": "user", "content": "rain " * (BIG_PROMPT_BYTES // 5)}]
STREAMED: Final[dict[str, Any]] = {"model": "mezzo", "messages": QUESTION, "stream": True}
# If the credit does not cover the longest answer, the provider streams one even if the client wants it whole.
WHOLE_STREAMED: Final[dict[str, Any]] = {"model": "fortissimo", "messages": QUESTION}
LITTLE: Final = "5.00"
RAIN: Final = ["It", " rains", "."]

SEVERAL_PROVIDERS: Final = f"""
[providers]
first = {{{{ kind = "openai", base_url = "{{base_url}}", zero_retention = true }}}}
spare = {{{{ kind = "openai", base_url = "SPARE_URL", zero_retention = true }}}}
[providers.anthropic]
kind = "anthropic"
base_url = "ANTHROPIC_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "2026-10-21"
[providers.google]
kind = "gemini"
base_url = "GEMINI_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "v1"

[models]
first = {{{{ provider = "first", name = "m", context_tokens = 100000, max_output_tokens = 2000, first_byte_s = {FIRST_BYTE_S} }}}}
spare = {{{{ provider = "spare", name = "m", context_tokens = 100000, max_output_tokens = 2000 }}}}
claude = {{{{ provider = "anthropic", name = "m", context_tokens = 100000, max_output_tokens = 2000 }}}}
gemini = {{{{ provider = "google", name = "m", context_tokens = 100000, max_output_tokens = 2000 }}}}

[classes]
mezzo = {{{{ models = ["first", "spare"] }}}}
forte = {{{{ models = ["claude"] }}}}
fortissimo = {{{{ models = ["gemini"] }}}}
"""  # noqa: E501


class Case(NamedTuple):
    """A client that disconnects, and when."""

    name: str
    reply: Reply
    chat: dict[str, Any] = STREAMED
    # Disconnects after reading this; empty: as soon as the provider has its request.
    leaves_after: bytes = b""
    # Its credit does not cover the longest answer.
    is_poor: bool = False
    # Closes with a reset, like a killed process with unread data.
    resets: bool = False


CASES: Final = (
    Case("before the first token", Reply(stall_after=1)),
    Case("before the response", Reply(delay_s=600)),
    Case("whole answer, before it", Reply(delay_s=600), {**STREAMED, "stream": False}),
    Case("whole answer, streamed to us", Reply(contents=RAIN, stall_after=3), WHOLE_STREAMED, is_poor=True),
    Case("mid-stream", Reply(contents=RAIN, stall_after=3), leaves_after=b'" rains"'),
    Case("mid-stream, reset", Reply(contents=RAIN, stall_after=3), leaves_after=b'" rains"', resets=True),
    Case("big prompt, before the first token", Reply(stall_after=1), {**STREAMED, "messages": LONG_QUESTION}),
    Case(
        "big prompt, mid-stream",
        Reply(contents=RAIN, stall_after=3),
        {**STREAMED, "messages": LONG_QUESTION},
        leaves_after=b'" rains"',
    ),
)
ANTHROPIC: Final = Case(
    "anthropic, before the first token", AnthropicReply(delay_s=600), {**STREAMED, "model": "forte"}
)
GEMINI: Final = Case("gemini, before the first token", GeminiReply(delay_s=600), {**STREAMED, "model": "fortissimo"})
SECOND_ATTEMPT: Final = "second attempt under way"
GIVEN_UP: Final = "attempt given up for the next"
STEPS: Final = len(CASES) + 4


def measure(seconds: float, progress: Progress) -> Iterator[Row]:
    with UpstreamThread() as upstream, Service(upstream, SETTINGS, routes=ROUTES) as service:
        yield from measure_on(service, upstream, seconds, progress)


def measure_on(service: Service, upstream: Upstream, seconds: float, progress: Progress) -> Iterator[Row]:
    """Measures with this upstream of the service, then changes the routes to others."""
    harness = _Harness(service, seconds, progress)
    for case in CASES:
        yield harness.row(case.name, lambda case=case: harness.leave(case, upstream))  # type: ignore[misc]
    with _several() as (routes, upstreams):
        first, spare, anthropic, google = upstreams
        service.follow_routes(routes)
        for case, vendor in ((ANTHROPIC, anthropic), (GEMINI, google)):
            yield harness.row(case.name, lambda case=case, vendor=vendor: harness.leave(case, vendor))  # type: ignore[misc]
        yield harness.row(SECOND_ATTEMPT, lambda: harness.leave_second_attempt(first, spare))
        yield harness.row(GIVEN_UP, lambda: harness.wait_for_the_next(first, spare))


def verdict(rows: list[Row]) -> str:
    longest_ms = max(row.figures["max ms"] or 0.0 for row in rows if row.measurement == MEASUREMENT)
    kept = "kept" if longest_ms <= PROMISED_MS else "BROKEN"
    return (
        f"That a client left is known upstream within {longest_ms:.0f} ms; promised are {PROMISED_MS:.0f} ms: {kept}."
    )


class _Harness:
    def __init__(self, service: Service, seconds: float, progress: Progress) -> None:
        self._service = service
        self._seconds = seconds
        self._progress = progress
        self._api_key = service.new_key(service.new_account("1000000"))
        self._poor_key = service.new_key(service.new_account(LITTLE))

    def row(self, name: str, time_one: Callable[[], float]) -> Row:
        """Repeats one case, sequentially, for the measured time, at least once."""
        self._progress.step(f"{MEASUREMENT}: {name}", expected_s=self._seconds)
        time_one()
        watch, ends_at_s = Watch({}, family=os.getpid()), time.monotonic() + self._seconds
        took_ms = [1000 * time_one()]
        while time.monotonic() < ends_at_s:
            took_ms.append(1000 * time_one())
            self._progress.show()
        figures: dict[str, float | None] = {
            "clients": float(len(took_ms)),
            "p50 ms": percentile(took_ms, 50),
            "p99 ms": percentile(took_ms, 99),
            "max ms": max(took_ms),
        }
        return Row(MEASUREMENT, name, figures, watch.spent().others_share)

    def leave(self, case: Case, upstream: Upstream) -> float:
        upstream.requests.clear()
        upstream.default_reply = case.reply
        chat = OpenChat(self._service, self._poor_key if case.is_poor else self._api_key, case.chat)
        request = wait_for_requests(upstream)
        chat.read_until(case.leaves_after)
        return _time_to_end(chat, request, resets=case.resets)

    def leave_second_attempt(self, first: Upstream, spare: Upstream) -> float:
        self._forget(first, spare)
        first.default_reply, spare.default_reply = Reply(status=500), Reply(delay_s=600)
        chat = OpenChat(self._service, self._api_key, STREAMED)
        return _time_to_end(chat, wait_for_requests(spare))

    def wait_for_the_next(self, first: Upstream, spare: Upstream) -> float:
        self._forget(first, spare)
        first.default_reply, spare.default_reply = Reply(delay_s=600), Reply(contents=RAIN)
        chat = OpenChat(self._service, self._api_key, STREAMED)
        chat.read_until(b"[DONE]")
        chat.leave()
        [request] = first.requests
        # The timeout began when the router sent the request, a little before the provider received it.
        return max(0.0, _ended_at_s(request) - request.received_at_s - FIRST_BYTE_S)

    def _forget(self, first: Upstream, spare: Upstream) -> None:
        """Resets what the router knows of a model that failed, by replacing its entry in the routes; otherwise it would
        be tried last."""
        routes = self._service.read_routes()
        for text in (routes.replace('["first", "spare"]', '["spare"]'), routes):
            self._service.follow_routes(text)
        first.requests.clear()
        spare.requests.clear()


@contextmanager
def _several() -> Iterator[tuple[str, list[Upstream]]]:
    """Starts several providers and routes to them."""
    with ExitStack() as opened:
        kinds = (Upstream(), Upstream(), AnthropicUpstream(), GeminiUpstream())
        upstreams = [opened.enter_context(UpstreamThread(kind)) for kind in kinds]
        routes = SEVERAL_PROVIDERS.format(base_url=upstreams[0].base_url)
        for name, upstream in zip(("SPARE_URL", "ANTHROPIC_URL", "GEMINI_URL"), upstreams[1:], strict=True):
            routes = routes.replace(name, upstream.base_url)
        yield routes, upstreams


def _time_to_end(chat: OpenChat, request: Recorded, *, resets: bool = False) -> float:
    left_at_s = time.monotonic()
    if resets:
        chat.reset()
    else:
        chat.leave()
    return _ended_at_s(request) - left_at_s


def _ended_at_s(request: Recorded) -> float:
    wait_until(lambda: request.aborted)
    assert request.aborted_at_s is not None
    return request.aborted_at_s

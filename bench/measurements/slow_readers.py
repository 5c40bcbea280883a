"""Measures the memory of all our processes while clients stop reading and the model keeps writing."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processors import Watch
from bench.report import Progress, Row
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.waiting import wait_until

MEASUREMENT: Final = "slow readers"
PROMISED_KB: Final = 512.0
READERS: Final = 50
EVENTS_A_WRITE: Final = 50
# A few answers first, so that one-time allocations are done.
WARM_UP_CHATS: Final = 10
# After this long without a write, every process waits for the readers.
STILL_S: Final = 2.0
STEPS: Final = 1

SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
}
CHAT: Final[dict[str, Any]] = {
    "model": "mezzo",
    "messages": [{"role": "user", "content": "How is the weather?"}],
    "stream": True,
}
EVENT: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":" rain"},"finish_reason":null}]}\n\n'
)
EVENTS: Final = 100_000


class Endless(Upstream):
    """Writes for as long as the reader accepts it; all answers share one list."""

    def __init__(self, events_a_write: int) -> None:
        super().__init__()
        self._writes = [EVENT * events_a_write] * (EVENTS // events_a_write)
        self.write_bytes = len(self._writes[0])
        self.is_endless = True

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        return self._writes if self.is_endless else super().write_stream(reply, recorded)


def measure(progress: Progress) -> Iterator[Row]:
    progress.step(MEASUREMENT, expected_s=30)
    upstream = Endless(EVENTS_A_WRITE)
    with UpstreamThread(upstream), Service(upstream, SETTINGS) as service:
        yield measure_on(service, upstream, READERS)


def verdict(rows: Sequence[Row]) -> str:
    most_kb = max(row.figures["KB a reader"] or 0.0 for row in rows if row.measurement == MEASUREMENT)
    kept = "kept" if most_kb <= PROMISED_KB else "BROKEN"
    return f"A reader that stops costs {most_kb:.0f} KB; promised are at most {PROMISED_KB:.0f} KB: {kept}."


def measure_on(service: Service, upstream: Endless, readers_wanted: int) -> Row:
    watch = Watch({}, family=os.getpid())
    account = service.new_account("1000000")
    api_key = service.new_key(account)
    upstream.is_endless = False
    for _ in range(WARM_UP_CHATS):
        post_chat(service, api_key, CHAT)
    upstream.is_endless = True
    upstream.requests.clear()
    processes = {process: state["pid"] for process, state in service.states().items() if state["pid"]}
    before = _held_kb(processes)
    readers = [OpenChat(service, api_key, CHAT, receive_buffer_bytes=4096) for _ in range(readers_wanted)]
    _wait_until_still(upstream, readers_wanted)
    stalled = list(upstream.requests)
    after = _held_kb(processes)
    grown_kb = {process: after[process] - before[process] for process in processes}
    # The model answers normally, and the client reads.
    upstream.is_endless = False
    asked_at_s = time.monotonic()
    answer = post_chat(service, api_key, CHAT)
    assert answer.body.endswith(b"data: [DONE]\n\n"), "who does read is not answered"
    others_wait_ms = 1000 * (time.monotonic() - asked_at_s)
    assert not any(request.ended.is_set() for request in stalled), "some were cut off before all had stopped"
    for reader in readers:
        reader.leave()
    wait_until(lambda: all(request.aborted for request in stalled))
    service.settled_balance_nanos(account)
    ends = [hold.end for hold in service.holds(account)]
    assert ends.count("client_gone") == readers_wanted, f"not all were booked as gone: {ends}"
    figures: dict[str, float | None] = {
        "readers": float(readers_wanted),
        "KB a reader": sum(max(0.0, kb) for kb in grown_kb.values()) / readers_wanted,
        "edge KB": sum(kb for process, kb in grown_kb.items() if process.startswith("edge")) / readers_wanted,
        "router KB": grown_kb["router"] / readers_wanted,
        "written upstream KB": max(request.writes for request in stalled) * upstream.write_bytes / 1024,
        "another chat ms": others_wait_ms,
    }
    return Row(MEASUREMENT, "a fast model", figures, watch.spent().others_share)


def _wait_until_still(upstream: Upstream, readers: int) -> None:
    written, since_s = -1, time.monotonic()
    while len(upstream.requests) < readers or time.monotonic() - since_s < STILL_S:
        now_written = sum(request.writes for request in upstream.requests)
        if now_written != written:
            written, since_s = now_written, time.monotonic()
        time.sleep(0.1)


def _held_kb(processes: dict[str, int]) -> dict[str, float]:
    """Reads the private memory of a process, without its program and the kernel's socket buffers."""
    return {process: _rss_anon_kb(process_id) for process, process_id in processes.items()}


def _rss_anon_kb(process_id: int) -> float:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

"""Stopping, starting, and processes that are killed."""

import operator
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import openai
import pytest

from legato_protos.chat.v1.chat_pb2 import CompleteRequest, StreamRequest
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from legato_protos.client import LegatoClient, channel
from services.chassis.errors import Reason
from services.chassis.rpc.channel import from_rpc_error, open_sync_channel
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import OpenChat, ask, post_chat
from tests.support.rpc_chats import socket_of, to_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

SHORT_DRAIN = {"LEGATO_DRAIN_S": "3"}
LONG_CONNECT_MS = 120_000

# What a chat of class mezzo costs, with the upstream's usual count of tokens.
CHAT_NANOS = 11 * 100 + 7 * 210


@pytest.fixture(scope="module")
def restarted(shared_upstream: Upstream) -> Iterator[Service]:
    """A service that these tests stop, start and kill."""
    with Service(shared_upstream, SHORT_DRAIN) as service:
        yield service


def test_stop_lets_answers_end_and_the_next_start_knows_everything(restarted: Service, upstream: Upstream) -> None:
    account = restarted.new_account(credits="1.5")
    api_key, revoked = restarted.new_key(account), restarted.make_key(account)
    restarted.legato("keys", "revoke", revoked.key.key_id)
    restarted.legato("accounts", "set", account, "--class", "mezzo")
    upstream.replies.append(Reply(contents=[" rain"] * 40, event_delay_s=0.025))
    chat = OpenChat(restarted, api_key, {"messages": QUESTION, "stream": True})
    chat.read_until(b'" rain"')

    stopping = threading.Thread(target=restarted.stop)
    stopping.start()
    chat.read_until(b"data: [DONE]")
    chat.leave()
    stopping.join()
    assert chat.received.count(b'" rain"') == 40
    restarted.start()

    balance = restarted.balance(account)
    assert (balance.balance_nanos, balance.held_nanos) == (1_500_000_000 - CHAT_NANOS, 0)
    assert sum(row.requests for row in restarted.usage(account)) == 1
    assert ask(restarted, "GET", "/v1/models", revoked.api_key).status == 401
    assert post_chat(restarted, api_key, {"messages": QUESTION}).json["model"] == "mezzo"
    assert restarted.settled_balance_nanos(account) == 1_500_000_000 - 2 * CHAT_NANOS
    assert restarted.audit() == []


def test_answer_that_outlasts_the_end_of_its_edge_is_told_so(restarted: Service, upstream: Upstream) -> None:
    account = restarted.new_account()
    upstream.replies.append(Reply(contents=["It", " rains"], stall_after=3))
    chat = OpenChat(restarted, restarted.new_key(account), {"model": "mezzo", "messages": QUESTION, "stream": True})
    chat.read_until(b'" rains"')
    restarted.kill("edge-1", signal.SIGTERM)
    chat.read_until(b'data: {"error"')
    assert b"[DONE]" not in chat.received
    chat.leave()
    wait_until(lambda: upstream.requests[-1].aborted)
    [row] = restarted.usage(account)
    assert row.usage.completion_tokens == 2
    assert restarted.audit() == []


def open_stream(service: Service, api_key: str) -> Any:
    stub = ChatServiceStub(open_sync_channel(socket_of(service.data)))
    chat = to_chat({"model": "mezzo", "messages": QUESTION})
    return stub.Stream(StreamRequest(chat=chat), metadata=(("authorization", f"Bearer {api_key}"),))


def test_stop_lets_answers_over_grpc_end(restarted: Service, upstream: Upstream) -> None:
    account = restarted.new_account()
    upstream.replies.append(Reply(contents=[" rain"] * 40, event_delay_s=0.025))
    stream = open_stream(restarted, restarted.new_key(account))
    responses = [next(stream)]
    stopping = threading.Thread(target=restarted.stop)
    stopping.start()
    responses += stream
    stopping.join()
    restarted.start()
    text = "".join(delta.text for response in responses for delta in response.deltas)
    assert text == " rain" * 40
    [row] = restarted.usage(account)
    assert row.cost_nanos == responses[-1].finished.usage.cost_nanos == CHAT_NANOS
    assert restarted.audit() == []


def test_answer_over_grpc_that_outlasts_the_end_of_its_edge_is_told_so(restarted: Service, upstream: Upstream) -> None:
    account = restarted.new_account()
    upstream.replies.append(Reply(contents=["It", " rains"], stall_after=3))
    stream = open_stream(restarted, restarted.new_key(account))
    responses = [next(stream)]
    restarted.kill("edge-1", signal.SIGTERM)
    with pytest.raises(grpc.RpcError) as ended:
        responses.extend(stream)
    assert from_rpc_error(ended.value, "the edge").reason is Reason.UNAVAILABLE
    assert "".join(delta.text for response in responses for delta in response.deltas) == "It rains"
    wait_until(lambda: upstream.requests[-1].aborted)
    [row] = restarted.usage(account)
    assert row.usage.completion_tokens == 2
    assert restarted.audit() == []


def test_answer_is_told_that_it_ends_when_the_edge_is_asked_to_end_a_second_time(shared_upstream: Upstream) -> None:
    shared_upstream.replies.append(Reply(contents=["It", " rains"], stall_after=3))
    with Service(shared_upstream, {"LEGATO_DRAIN_S": "3600"}) as service:
        account = service.new_account()
        chat = OpenChat(service, service.new_key(account), {"model": "mezzo", "messages": QUESTION, "stream": True})
        chat.read_until(b'" rains"')
        with socket.create_connection(service.address, WAIT_TIMEOUT_S) as idle:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
            assert idle.recv(65536)
            os.kill(service.supervisor_id, signal.SIGTERM)
            # Until the edge has heard it: of two signals that wait, a process gets one.
            while idle.recv(65536):
                pass
        service.stop()
        chat.read_until(b'data: {"error"')
        assert b"[DONE]" not in chat.received
        chat.leave()


def test_client_whose_connection_was_closed_in_between_does_not_notice(restarted: Service, upstream: Upstream) -> None:
    api_key = restarted.new_key(restarted.new_account())
    with openai.OpenAI(base_url=restarted.base_url, api_key=api_key) as client:
        assert client.models.list().data
        restarted.kill("edge-1", signal.SIGTERM)
        answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
        assert answer.choices[0].message.content == "Hello, world!"
    assert len(upstream.requests) == 1


def test_client_that_waits_while_the_edge_starts_again_is_served(restarted: Service, upstream: Upstream) -> None:
    api_key = restarted.new_key(restarted.new_account())
    before = restarted.states()["edge-1"]["restarts"]
    with restarted.restart_of("edge-1"):
        restarted.signal("edge-1", signal.SIGKILL)
        wait_until(lambda: restarted.states()["edge-1"]["restarts"] > before)
        answer = post_chat(restarted, api_key, {"messages": QUESTION})
    assert answer.status == 200, answer.body


def complete_by_client(service: Service, api_key: str) -> Iterator[str]:
    """Asks by our client, again and again, on one channel; yields the texts."""
    with LegatoClient(socket_of(service.data), api_key=api_key) as legato:
        while True:
            yield legato.complete("Hi", model="mezzo", timeout_s=120).message.text


def keyed(api_key: str) -> tuple[tuple[str, str], ...]:
    return ("authorization", f"Bearer {api_key}"), ("idempotency-key", uuid.uuid4().hex)


def complete_by_grpc(service: Service, api_key: str) -> Iterator[str]:
    """The same without our client, by its service configuration alone, as in other languages."""
    request = CompleteRequest(chat=to_chat({"model": "mezzo", "messages": QUESTION}))
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", LONG_CONNECT_MS),
    ]
    options.append(("grpc.service_config", channel.service_config()))
    with grpc.insecure_channel(socket_of(service.data), options=options) as opened:
        stub: Any = ChatServiceStub(opened)
        while True:
            yield stub.Complete(request, timeout=120, metadata=keyed(api_key)).message.text


@pytest.mark.parametrize("ask_again", [complete_by_client, complete_by_grpc])
def test_programs_do_not_notice_that_the_only_edge_is_restarted(
    restarted: Service, ask_again: Callable[[Service, str], Iterator[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine takes longer to start an edge.
    for timeout in ("CONNECT_TIMEOUT_MS", "KEEPALIVE_MS"):
        monkeypatch.setattr(channel, timeout, LONG_CONNECT_MS)
    api_key, stopping, answered = restarted.new_key(restarted.new_account()), threading.Event(), [0] * 4

    def ask_until_stopped(number: int) -> None:
        for text in ask_again(restarted, api_key):
            answered[number] += 1
            assert text == "Hello, world!"
            if stopping.is_set():
                return

    def wait_for_more() -> None:
        before = list(answered)
        wait_until(lambda: any(each.done() for each in asking) or all(map(operator.gt, answered, before)))

    with ThreadPoolExecutor(len(answered)) as threads:
        asking = [threads.submit(ask_until_stopped, number) for number in range(len(answered))]
        try:
            for _ in range(2):
                wait_for_more()
                with restarted.restart_of("edge-1"):
                    restarted.signal("edge-1", signal.SIGTERM)
        finally:
            stopping.set()
        for asked in asking:
            asked.result()


class Traffic:
    """Streams one chat after the other on a few threads, whatever happens to them."""

    def __init__(self, service: Service, api_key: str) -> None:
        self.whole = 0
        self.broken = 0
        self._service = service
        self._api_key = api_key
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._chat) for _ in range(3)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        wanted = self.whole + count
        wait_until(lambda: self.whole >= wanted)

    def _chat(self) -> None:
        with openai.OpenAI(base_url=self._service.base_url, api_key=self._api_key, max_retries=0) as client:
            while not self._stopping.is_set():
                try:
                    stream = client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
                    assert list(stream)[-1].usage is not None
                    self.whole += 1
                except (openai.APIError, OSError):
                    self.broken += 1
                    time.sleep(0.05)


@pytest.mark.parametrize("process", ["router", "metering", "auth", "edge-1"])
def test_killed_process_comes_back_and_the_books_are_right(
    restarted: Service, upstream: Upstream, process: str
) -> None:
    upstream.default_reply = Reply(event_delay_s=0.04)
    account = restarted.new_account()
    with Traffic(restarted, restarted.new_key(account)) as traffic:
        traffic.wait_for_more(3)
        # In the middle of an answer.
        wait_until(lambda: not upstream.requests[-1].ended.is_set())
        restarted.kill(process)
        traffic.wait_for_more(6)
    assert f"{process} ended (SIGKILL); restarting it" in restarted.output_text()
    balance_nanos = restarted.settled_balance_nanos(account)
    rows = restarted.usage(account)
    charged_requests, cost_nanos = sum(row.requests for row in rows), sum(row.cost_nanos for row in rows)
    assert balance_nanos == 5 * 10**9 - cost_nanos
    # Whichever process dies, the edge knows what it served, or finds it in its journal, and sees it charged.
    assert traffic.whole <= charged_requests <= traffic.whole + traffic.broken
    assert cost_nanos >= traffic.whole * CHAT_NANOS
    assert '"hold.swept"' not in restarted.log_text()
    assert restarted.audit() == []

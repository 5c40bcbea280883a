"""A database, auth or metering that is away for a while: new chats wait for it, and none is lost or charged twice."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.e2e.operations import LISTENING, look_at, value_of
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.servers.postgres import Postgres
from tests.support.service import Service
from tests.support.steady_chats import CHAT, SentChat, SteadyChats
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

PER_S = 20
# Of the impatient service.
MOST_WAITING, MOST_BYTES = 50, 100_000


class Failover:
    """A service on a PostgreSQL of its own, and clients of some accounts."""

    def __init__(self, service: Service, postgres: Postgres) -> None:
        self.service = service
        self.postgres = postgres
        self.accounts = [service.new_account() for _ in range(3)]
        self.api_keys = [service.new_key(account) for account in self.accounts]

    def chats(self) -> SteadyChats:
        return SteadyChats(self.service.base_url, self.api_keys, PER_S)

    def charged(self) -> dict[str, int]:
        for account in self.accounts:
            self.service.settled_balance_nanos(account)
        return {
            key: len([entry for entry in self.service.entries(account) if entry.kind == "charge"])
            for key, account in zip(self.api_keys, self.accounts, strict=True)
        }

    def check_books(self, chats: SteadyChats, before: dict[str, int]) -> None:
        """Each chat with an answer was charged once, and no other."""
        after = self.charged()
        whole = [chat.api_key for chat in chats.sent if chat.is_whole]
        assert {key: after[key] - before[key] for key in after} == {key: whole.count(key) for key in after}
        assert self.service.audit() == []


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server that only these tests use."""
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def patient(shared_upstream: Upstream, postgres: Postgres) -> Iterator[Failover]:
    environ = {"LEGATO_DATABASE_URL": postgres.create_database(), **LISTENING}
    with Service(shared_upstream, environ, workers=1) as service:
        yield Failover(service, postgres)


@pytest.fixture(scope="module")
def impatient(shared_upstream: Upstream, postgres: Postgres) -> Iterator[Failover]:
    limits = {"LEGATO_OUTAGE_WAITING": str(MOST_WAITING), "LEGATO_OUTAGE_WAITING_BYTES": str(MOST_BYTES)}
    limits["LEGATO_OUTAGE_WAIT_S"] = "2"
    environ = {"LEGATO_DATABASE_URL": postgres.create_database(), **LISTENING, **limits}
    with Service(shared_upstream, environ, workers=1) as service:
        yield Failover(service, postgres)


@contextmanager
def database_away(failover: Failover) -> Iterator[None]:
    failover.postgres.kill()
    yield
    failover.postgres.start_again()


def summary(chats: list[SentChat]) -> list[tuple[int | None, str]]:
    return [(chat.status, chat.text[:200]) for chat in chats[:5]]


def test_no_chat_fails_while_the_database_is_replaced(patient: Failover, upstream: Upstream) -> None:
    before = patient.charged()
    with patient.chats() as chats:
        wait_until(lambda: any(chat.is_whole for chat in chats.sent))
        away_since_s = time.monotonic()
        patient.postgres.freeze()
        time.sleep(5)
        patient.postgres.kill()
        time.sleep(max(0.0, away_since_s + 10 - time.monotonic()))
        patient.postgres.start_again()
    assert summary(chats.failed) == []
    assert len(chats.sent) > 10 * PER_S * 0.8
    patient.check_books(chats, before)


def test_long_outage_ends_in_clear_errors_and_its_end_in_full_service(impatient: Failover, upstream: Upstream) -> None:
    before = impatient.charged()
    with impatient.chats() as chats:
        wait_until(lambda: any(chat.is_whole for chat in chats.sent))
        impatient.postgres.freeze()
        time.sleep(3)
        impatient.postgres.kill()
        time.sleep(3)
        ready = look_at(impatient.service, "edge", "/readyz").status
        impatient.postgres.start_again()
        back_at_s = time.monotonic()
        wait_until(lambda: [chat for chat in chats.sent if chat.sent_at_s > back_at_s + 7 and chat.status is not None])
    assert ready == 200
    assert chats.failed
    for chat in chats.failed:
        assert (chat.status, chat.headers.get("retry-after")) == (503, "5"), chat.text
        assert json.loads(chat.text)["error"]["code"] == "service_unavailable"
    assert summary(chats.failed_after(back_at_s + 5)) == []
    impatient.check_books(chats, before)


@pytest.mark.parametrize("process", ["auth", "metering"])
def test_no_chat_fails_while_a_service_is_restarted(patient: Failover, upstream: Upstream, process: str) -> None:
    before = patient.charged()
    with patient.chats() as chats:
        wait_until(lambda: any(chat.is_whole for chat in chats.sent))
        patient.service.kill(process)
        back_at_s = time.monotonic()
        wait_until(lambda: [chat for chat in chats.sent if chat.sent_at_s > back_at_s and chat.status is not None])
    assert summary(chats.failed) == []
    patient.check_books(chats, before)


def test_flood_during_an_outage_stays_within_its_bounds(impatient: Failover, upstream: Upstream) -> None:
    service = impatient.service
    resident_bytes = partial(value_of, service, "edge", "process_resident_memory_bytes")
    before_bytes = resident_bytes()
    with database_away(impatient):
        with SteadyChats(service.base_url, impatient.api_keys, 200) as chats:
            wait_until(lambda: value_of(service, "edge", "legato_waits_total", outcome="full") > 100)
            assert value_of(service, "edge", "legato_requests_waiting") <= MOST_WAITING
            wait_until(lambda: len(chats.sent) > 1_000)
        large = {**CHAT, "messages": [{"role": "user", "content": "x" * (MOST_BYTES + 1)}]}
        chat = post_chat(service, impatient.api_keys[0], large)
        assert "too many requests wait" in chat.error["message"]
    assert {chat.status for chat in chats.sent} == {503}
    assert resident_bytes() - before_bytes < 64 * 1024 * 1024
    wait_until(lambda: post_chat(service, impatient.api_keys[0], CHAT).status == 200)


@pytest.mark.parametrize("request_line", ["POST /v1/chat/completions", "GET /v1/models"])
def test_client_that_leaves_frees_its_place(patient: Failover, upstream: Upstream, request_line: str) -> None:
    service, api_key = patient.service, patient.api_keys[0]
    waiting = partial(value_of, service, "edge", "legato_requests_waiting")
    with database_away(patient):
        # Until the lease on what the edge knows of keys is over.
        wait_until(lambda: value_of(service, "edge", "auth_revocation_lag_seconds") > 1)
        with socket.create_connection(service.address) as client:
            headers = f"Host: x\r\nAuthorization: Bearer {api_key}\r\nContent-Length: 2\r\n"
            client.sendall(f"{request_line} HTTP/1.1\r\n{headers}\r\n{{}}".encode())
            wait_until(lambda: waiting() == 1)
        wait_until(lambda: not waiting())
        assert value_of(service, "edge", "legato_waits_total", outcome="gone")
    wait_until(lambda: post_chat(service, api_key, CHAT).status == 200)


def test_key_revoked_while_its_chat_waits_is_refused(patient: Failover, upstream: Upstream) -> None:
    service = patient.service
    created = service.make_key(patient.accounts[0])
    assert post_chat(service, created.api_key, CHAT).status == 200
    upstream.requests.clear()
    service.signal("metering", signal.SIGSTOP)
    try:
        chat = OpenChat(service, created.api_key, CHAT)
        wait_until(lambda: value_of(service, "edge", "legato_requests_waiting") == 1)
        service.legato("keys", "revoke", created.key.key_id)
    finally:
        service.signal("metering", signal.SIGCONT)
    chat.read_until(b"invalid_api_key")
    chat.leave()
    assert upstream.requests == []


def test_key_revoked_right_after_the_return_is_refused_at_once(patient: Failover, upstream: Upstream) -> None:
    service = patient.service
    created = service.make_key(patient.accounts[0])
    assert post_chat(service, created.api_key, CHAT).status == 200
    with database_away(patient):
        wait_until(lambda: value_of(service, "edge", "auth_revocation_lag_seconds") > 1)
        chat = OpenChat(service, created.api_key, CHAT)
        wait_until(lambda: value_of(service, "edge", "legato_requests_waiting") == 1)
    chat.read_until(b"[DONE]")
    chat.leave()
    service.legato("keys", "revoke", created.key.key_id)
    assert post_chat(service, created.api_key, CHAT).error["code"] == "invalid_api_key"

"""A database, auth or metering that is away for a while: new chats wait for it, and none is lost or charged twice."""

import signal
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.operations import LISTENING, look_at, value_of
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.failover import PER_S, Failover, flaws_of_outage
from tests.support.servers.postgres import Postgres
from tests.support.service import Service
from tests.support.steady_chats import CHAT, SentChat, SteadyChats
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

# Of the impatient service.
MOST_WAITING, MOST_BYTES = 50, 100_000


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server that only these tests use."""
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def patient(shared_upstream: Upstream, postgres: Postgres) -> Iterator[Failover]:
    # A busy machine needs long to start a process; `make failover-test` has the default.
    environ = {"LEGATO_DATABASE_URL": postgres.create_database(), "LEGATO_OUTAGE_WAIT_S": "60", **LISTENING}
    with Service(shared_upstream, environ, workers=1) as service:
        yield Failover(service, postgres)


@pytest.fixture(scope="module")
def impatient(shared_upstream: Upstream, postgres: Postgres) -> Iterator[Failover]:
    limits = {"LEGATO_OUTAGE_WAITING": str(MOST_WAITING), "LEGATO_OUTAGE_WAITING_BYTES": str(MOST_BYTES)}
    limits["LEGATO_OUTAGE_WAIT_S"] = "2"
    environ = {"LEGATO_DATABASE_URL": postgres.create_database(), **LISTENING, **limits}
    with Service(shared_upstream, environ, workers=1) as service:
        yield Failover(service, postgres)


def summary(chats: list[SentChat]) -> list[tuple[int | None, str]]:
    return [(chat.status, chat.text[:200]) for chat in chats[:5]]


def test_no_chat_fails_while_the_database_is_replaced(patient: Failover, upstream: Upstream) -> None:
    with patient.chats() as chats:
        patient.replace_database(away_s=10)
    assert summary(chats.failed) == []
    assert len(chats.sent) > 10 * PER_S * 0.8


@pytest.mark.long
def test_long_outage_ends_in_clear_errors_and_its_end_in_full_service(impatient: Failover, upstream: Upstream) -> None:
    with impatient.chats() as chats:
        back_at_s = impatient.replace_database(away_s=6)
        wait_until(lambda: [chat for chat in chats.sent if chat.sent_at_s > back_at_s + 7 and chat.status is not None])
    assert chats.failed
    assert flaws_of_outage(chats, back_at_s + 5) == []


@pytest.mark.parametrize("process", ["auth", "metering"])
def test_no_chat_fails_while_a_service_is_restarted(patient: Failover, upstream: Upstream, process: str) -> None:
    with patient.chats() as chats:
        patient.service.kill(process)
        back_at_s = time.monotonic()
        wait_until(lambda: [chat for chat in chats.sent if chat.sent_at_s > back_at_s and chat.status is not None])
    assert summary(chats.failed) == []


@pytest.mark.long
def test_flood_during_an_outage_stays_within_its_bounds(impatient: Failover, upstream: Upstream) -> None:
    service = impatient.service
    resident_bytes = partial(value_of, service, "edge", "process_resident_memory_bytes")
    before_bytes = resident_bytes()
    with impatient.without_database():
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
    with patient.without_database():
        assert look_at(service, "edge", "/readyz").status == 200
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
    with patient.without_database():
        wait_until(lambda: value_of(service, "edge", "auth_revocation_lag_seconds") > 1)
        chat = OpenChat(service, created.api_key, CHAT)
        wait_until(lambda: value_of(service, "edge", "legato_requests_waiting") == 1)
    chat.read_until(b"[DONE]")
    chat.leave()
    service.legato("keys", "revoke", created.key.key_id)
    assert post_chat(service, created.api_key, CHAT).error["code"] == "invalid_api_key"

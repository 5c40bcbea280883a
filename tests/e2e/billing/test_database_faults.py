"""A database that is restarted, locked or full: no stream breaks, and the books are exact after it."""

import os
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from tests.e2e.chats import CHAT
from tests.e2e.raw_http import OpenChat, post_chat
from tests.e2e.rules import Charged, check_books, read_rules
from tests.support.servers.postgres import Postgres
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

RULES = read_rules("What failed of ours")
CREDIT_NANOS = 5 * 10**9

SLOW = Reply(event_delay_s=0.25)
CHARGED = Charged(11, 7)


class OnSqlite:
    def __init__(self, service: Service) -> None:
        self.service = service

    @contextmanager
    def locked(self) -> Iterator[None]:
        with closing(sqlite3.connect(self.service.data / "metering.db", timeout=20, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Lets no file grow, as on a full disk."""
        process_id = self.service.process_id("metering")
        limits = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, (4096, limits[1]))
        yield
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, limits)


class OnPostgresql:
    def __init__(self, service: Service, url: str) -> None:
        self.service = service
        self._url = url

    @contextmanager
    def locked(self) -> Iterator[None]:
        with psycopg.connect(self._url) as other:
            other.execute("SELECT * FROM metering.accounts FOR UPDATE")
            yield

    @contextmanager
    def full(self) -> Iterator[None]:
        with psycopg.connect(self._url, autocommit=True) as owner:
            owner.execute(
                "CREATE FUNCTION metering.refuse_room() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE disk_full; END $$"
            )
            for table in ("holds", "ledger"):
                owner.execute(
                    f"CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON metering.{table}"
                    " EXECUTE FUNCTION metering.refuse_room()".encode()
                )
            yield
            owner.execute("DROP FUNCTION metering.refuse_room CASCADE")

    def restart(self) -> None:
        """When one of its processes is killed, the server ends all others and recovers, as after a crash."""
        with closing(psycopg.connect(self._url)) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)


Faulty = OnSqlite | OnPostgresql


@pytest.fixture(scope="module")
def faulty_postgresql(shared_upstream: Upstream, postgres_server: Postgres) -> Iterator[OnPostgresql]:
    url = postgres_server.create_database()
    with Service(shared_upstream, {"LEGATO_DATABASE_URL": url, "LEGATO_OUTAGE_WAIT_S": "5"}) as service:
        yield OnPostgresql(service, url)
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def faulty(request: pytest.FixtureRequest, service: Service, upstream: Upstream) -> Faulty:
    if request.param == "sqlite":
        return OnSqlite(service)
    faulty: OnPostgresql = request.getfixturevalue("faulty_postgresql")
    return faulty


def test_locked_database_is_waited_for(faulty: Faulty, upstream: Upstream) -> None:
    service = faulty.service
    running_account, waiting_account = service.new_account(), service.new_account()
    waiting_key = service.new_key(waiting_account)
    upstream.replies.append(SLOW)
    running = OpenChat(service, service.new_key(running_account), CHAT)
    running.read_until(b'"Hello"')
    with faulty.locked():
        waiting = OpenChat(service, waiting_key, CHAT)
        running.read_until(b"[DONE]")
        [hold] = service.holds(running_account)
        assert hold.state == "held"
    waiting.read_until(b"[DONE]")
    for chat, account in ((running, running_account), (waiting, waiting_account)):
        chat.leave()
        check_books(service, account, CREDIT_NANOS, RULES["Database locked in mid-stream"], CHARGED)
    assert service.audit() == []


def test_full_database_takes_nothing_new_and_breaks_nothing(faulty: Faulty, upstream: Upstream) -> None:
    service = faulty.service
    running_account, refused_account = service.new_account(), service.new_account()
    refused_key = service.new_key(refused_account)
    upstream.replies.append(SLOW)
    running = OpenChat(service, service.new_key(running_account), CHAT)
    running.read_until(b'"Hello"')
    with faulty.full():
        refused = post_chat(service, refused_key, CHAT)
        running.read_until(b"[DONE]")
        [hold] = service.holds(running_account)
        assert hold.state == "held"
    running.leave()
    assert refused.status == int(RULES["Database full at the beginning"].seen)
    assert int(refused.headers["retry-after"]) >= 1
    check_books(service, refused_account, CREDIT_NANOS, RULES["Database full at the beginning"], None)
    check_books(service, running_account, CREDIT_NANOS, RULES["Database full in mid-stream"], CHARGED)
    assert post_chat(service, refused_key, CHAT).status == 200
    assert service.audit() == []


def test_restarted_database_breaks_no_stream(faulty_postgresql: OnPostgresql, upstream: Upstream) -> None:
    service = faulty_postgresql.service
    accounts = [service.new_account() for _ in range(10)]
    upstream.default_reply = SLOW
    chats = [OpenChat(service, service.new_key(account), CHAT) for account in accounts]
    for chat in chats:
        chat.read_until(b'"Hello"')
    new_account = service.new_account()
    new_key = service.new_key(new_account)
    faulty_postgresql.restart()
    new = post_chat(service, new_key, CHAT)
    for chat, account in zip(chats, accounts, strict=True):
        chat.read_until(b"[DONE]")
        chat.leave()
        check_books(service, account, CREDIT_NANOS, RULES["Database restarted in mid-stream"], CHARGED)
    # In time, or later than anybody waits.
    assert new.status in (200, 503)
    service.settled_balance_nanos(new_account)
    assert len(service.entries(new_account)) == (new.status == 200)
    assert service.audit() == []

"""A restore drill: a backup while the service is in use, everything destroyed, and a restore that is killed too."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest

from cli.supervision.data_folder import socket_of
from legato_protos.auth.v1.credentials_pb2_grpc import SignInServiceStub
from services.chassis.database.database import open_database
from tests.e2e.conftest import plain_http
from tests.services.auth.console import by_link
from tests.support.servers.postgres import Postgres
from tests.support.service import LEGATO, Service
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

WITH_DATABASE = ("auth", "metering", "router")


class Drill:
    """A service on one kind of store."""

    def __init__(self, upstream: Upstream, folder: Path, postgres: Postgres | None) -> None:
        self._postgres = postgres
        self._url = postgres.create_database() if postgres else ""
        self._environ = {"LEGATO_MEMORY": "true"} | ({"LEGATO_DATABASE_URL": self._url} if postgres else {})
        self.service = Service(upstream, self._environ)
        self._backups = str(folder / "backups")
        self._failpoints = folder / "failpoints"
        self._failpoints.mkdir()

    def chat(self, api_key: str) -> None:
        with openai.OpenAI(
            base_url=self.service.base_url, api_key=api_key, max_retries=0, http_client=plain_http()
        ) as client:
            client.chat.completions.create(model="mezzo", messages=[{"role": "user", "content": "Hello"}])

    def serves(self, api_key: str) -> bool:
        """Chats; returns False while the edge has not found the services again."""
        try:
            self.chat(api_key)
        except openai.InternalServerError:
            return False
        return True

    def sign_in(self, code: str) -> None:
        with closing(grpc.insecure_channel(f"unix:{socket_of('auth-console', self.service.data)}")) as channel:
            SignInServiceStub(channel).SignIn(by_link(code), timeout=30)

    @contextmanager
    def in_use(self) -> Iterator[Callable[[], None]]:
        """Chats with new accounts inside: they are what the order of the copies is about. Yields a function that waits
        for one more."""
        stop, answered = threading.Event(), threading.Semaphore(0)

        def chat() -> None:
            while not stop.is_set():
                self.chat(self.service.new_key(self.service.new_account()))
                answered.release()

        def wait() -> None:
            assert answered.acquire(timeout=60)

        chatting = [threading.Thread(target=chat) for _ in range(2)]
        for thread in chatting:
            thread.start()
        try:
            yield wait
        finally:
            stop.set()
            for thread in chatting:
                thread.join()

    def back_up(self) -> Any:
        done = self._run("backup")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def services_away(self) -> Iterator[None]:
        """Ends the processes that use the database meanwhile; with SQLite, all."""
        if not self._postgres:
            self.service.stop()
            yield
            self.service.start()
            return
        edge = self.service.process_id("edge-1")
        for process in WITH_DATABASE:
            self.service.signal(process, signal.SIGSTOP)
        yield
        for process in WITH_DATABASE:
            self.service.kill(process)
        assert self.service.process_id("edge-1") == edge

    def has_copied_events(self) -> bool:
        """Tells if auth's copy of the audit log, which follows within a second, has all events."""
        segments = [path.read_text() for path in (self.service.data / "audit-copy").rglob("*.jsonl")]
        return bool(sum(segment.count("\n") for segment in segments) == self.service.legato("audit")["audit_events"])

    def destroy_stores(self) -> None:
        if self._postgres:
            self._postgres.drop_database(self._url)
        for path in self.service.data.glob("*.db*"):
            path.unlink()

    def restore(self, *, killed_at_step: int = 0) -> Any:
        """Restores to where the stores were."""
        if killed_at_step:
            (self._failpoints / "restore.step").write_text(str(killed_at_step))
        done = self._run("restore", *(["--database", self._name()] if self._postgres else []))
        if killed_at_step:
            assert done.returncode == -signal.SIGKILL, done.stderr
            return None
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def _name(self) -> str:
        return self._url.rpartition("@/")[2].partition("?")[0]

    def _run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = f"{self._postgres.binaries}:{os.environ['PATH']}" if self._postgres else os.environ["PATH"]
        return subprocess.run(
            [LEGATO, command, self._backups, *options, "--json", "--data", self.service.data],
            env={**os.environ, **self._environ, "LEGATO_FAILPOINTS": str(self._failpoints), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    def accounts_of(self, service: str) -> set[str]:
        with (
            closing(open_database(service, self._url, self.service.data)) as database,
            database.transaction(writes=False) as connection,
        ):
            return set(connection.exec_driver_sql("SELECT account_id FROM accounts").scalars())


@pytest.fixture(params=["sqlite", "postgresql"])
def drill(request: pytest.FixtureRequest, upstream: Upstream, socket_folder: Path) -> Iterator[Drill]:
    postgres = request.getfixturevalue("postgres_server") if request.param == "postgresql" else None
    drill = Drill(upstream, socket_folder, postgres)
    with drill.service:
        yield drill


def test_restored_service_goes_on_where_the_backup_was_taken_and_revives_nothing(drill: Drill) -> None:
    service = drill.service
    account_id = service.new_account(credits="5.00")
    suspended_id, closed_id = service.new_account(), service.new_account()
    kept, revoked = service.make_key(account_id), service.make_key(account_id)
    of_suspended, of_closed = service.new_key(suspended_id), service.new_key(closed_id)
    for noted_id in (account_id, closed_id):
        service.legato("memory", "add", noted_id, "Ada counts in French.")
    for key in (kept.api_key, revoked.api_key, of_suspended, of_closed):
        drill.chat(key)
    service.legato("credits", "grant", account_id, "2.50")
    code = service.legato("users", "invite", "--name", "Ada", "--account", account_id)["link"].partition("#")[2]
    bob_id = service.legato("users", "invite", "--name", "Bob", "--account", account_id)["user_id"]
    balance_nanos = service.settled_balance_nanos(account_id)
    with drill.in_use() as wait_for_chat:
        for _ in range(4):
            wait_for_chat()
        made = drill.back_up()
        wait_for_chat()

    service.legato("keys", "revoke", revoked.key.key_id)
    service.legato("accounts", "suspend", suspended_id)
    service.legato("accounts", "close", closed_id)
    service.legato("users", "delete", bob_id)
    drill.sign_in(code)
    drill.chat(kept.api_key)
    assert service.settled_balance_nanos(account_id) < balance_nanos
    wait_until(drill.has_copied_events)
    with drill.services_away():
        drill.destroy_stores()
        drill.restore(killed_at_step=1)
        drill.restore(killed_at_step=3)
        restored = drill.restore()
        assert restored["backup"] == made["backup"]
        assert len(drill.accounts_of("auth")) == made["accounts"]
        assert drill.accounts_of("metering") <= drill.accounts_of("auth")

    assert service.audit() == []
    assert service.balance(account_id).balance_nanos == balance_nanos
    wait_until(lambda: drill.serves(kept.api_key))
    assert service.settled_balance_nanos(account_id) < balance_nanos
    # What was ended after the backup stays ended.
    for ended in (revoked.api_key, of_suspended, of_closed):
        with pytest.raises((openai.AuthenticationError, openai.PermissionDeniedError)):
            drill.chat(ended)
    with pytest.raises(grpc.RpcError):
        drill.sign_in(code)
    # So does what was deleted; the notes of closed accounts by a command.
    assert "Bob" not in [each["name"] for each in service.legato("users", "list")]
    assert [each["account_id"] for each in service.legato("accounts", "close", "--again")] == [closed_id]
    assert [len(service.legato("memory", "list", each)) for each in (account_id, closed_id)] == [1, 0]

"""A service on a PostgreSQL of its own, which is frozen, killed and replaced while chats come."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.servers.postgres import Postgres
from tests.support.service import Service
from tests.support.steady_chats import SteadyChats
from tests.support.waiting import wait_until

PER_S = 20


class Failover:
    def __init__(self, service: Service, postgres: Postgres) -> None:
        self.service = service
        self.postgres = postgres
        self.accounts = [service.new_account() for _ in range(3)]
        self.api_keys = [service.new_key(account) for account in self.accounts]

    @contextmanager
    def chats(self, per_s: float = PER_S) -> Iterator[SteadyChats]:
        """Sends chats while the block runs. Afterwards each has its answer, and each whole one was charged once."""
        before = self._charged()
        with SteadyChats(self.service.base_url, self.api_keys, per_s) as chats:
            wait_until(lambda: any(chat.is_whole for chat in chats.sent))
            yield chats
        after = self._charged()
        whole = [chat.api_key for chat in chats.sent if chat.is_whole]
        assert {key: after[key] - before[key] for key in after} == {key: whole.count(key) for key in after}
        assert self.service.audit() == []

    def replace_database(self, away_s: float) -> float:
        """Freezes the database, kills it at half of the time, and starts another server; returns when that served."""
        since_s = time.monotonic()
        self.postgres.freeze()
        time.sleep(away_s / 2)
        self.postgres.kill()
        time.sleep(max(0.0, since_s + away_s - time.monotonic()))
        self.postgres.start_again()
        return time.monotonic()

    @contextmanager
    def without_database(self) -> Iterator[None]:
        self.postgres.kill()
        yield
        self.postgres.start_again()

    def _charged(self) -> dict[str, int]:
        for account in self.accounts:
            self.service.settled_balance_nanos(account)
        return {
            key: len([entry for entry in self.service.entries(account) if entry.kind == "charge"])
            for key, account in zip(self.api_keys, self.accounts, strict=True)
        }


def flaws_of_outage(chats: SteadyChats, served_from_s: float) -> list[str]:
    """Returns what is wrong with failed chats: an error that is not clear, or one after the service was back."""
    flaws = []
    for chat in chats.failed:
        is_clear = chat.status == 503 and "retry-after" in chat.headers
        if not is_clear or json.loads(chat.text)["error"]["code"] != "service_unavailable":
            flaws.append(f"{chat.status} {chat.text[:200]}")
        if chat.sent_at_s > served_from_s:
            flaws.append(f"failed {chat.sent_at_s - served_from_s:.1f} s after full service was due: {chat.text[:200]}")
    return flaws

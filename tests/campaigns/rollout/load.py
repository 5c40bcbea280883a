"""Clients that chat while releases are replaced, on every account and with every service that is there in turn."""

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from typing import Final

CLIENTS: Final = 6


class Load:
    def __init__(self, keys: dict[str, str]) -> None:
        """Takes the key of each account."""
        self._keys = list(keys.items())
        # By what the release is called.
        self._addresses: dict[str, str] = {}
        self._running: Counter[str] = Counter()
        # Accounts that got spend limits, from the moment on when they are about to.
        self.limited: set[str] = set()
        # A release is starting, and migrates.
        self.is_migrating = False
        # By account.
        self.answered: Counter[str] = Counter()
        # By release, and what became of the chat.
        self.outcomes: Counter[str] = Counter()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._chat, args=(number,)) for number in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def add(self, release: str, base_url: str) -> None:
        with self._changed:
            self._addresses[release] = base_url

    def withdraw(self, release: str) -> None:
        """Sends nothing more there; returns when all that was sent is answered."""
        with self._changed:
            del self._addresses[release]
            self._changed.wait_for(lambda: not self._running[release])

    def _chat(self, number: int) -> None:
        while not self._stop.is_set():
            number += 1
            account_id, key = self._keys[number % len(self._keys)]
            with self._changed:
                release = list(self._addresses)[number // len(self._keys) % len(self._addresses)]
                self._running[release] += 1
                base_url = self._addresses[release]
            outcome = ask(base_url, key)
            with self._changed:
                self._running[release] -= 1
                self._changed.notify_all()
                when = " with a limit" if account_id in self.limited else " during a migration" * self.is_migrating
                self.outcomes[f"{release}: {outcome}{when}"] += 1
                self.answered[account_id] += outcome == "answered"


def ask(base_url: str, key: str) -> str:
    body = {"model": "mezzo", "messages": [{"role": "user", "content": "Say something."}]}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return "answered"
    except urllib.error.HTTPError as error:
        with error:
            return str(error.code)
    except OSError as error:
        return type(error).__name__

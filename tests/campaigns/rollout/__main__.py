"""Replaces a release by the version of today while both are in use, on one PostgreSQL (`make rollout`).

    make rollout ARGS="/tmp/legato-0.1.0"

The argument is a checkout of the release with an environment of its own (see tests/e2e/upgrades/make_release_data.py).
Chats run on the old service throughout, and on the new one from its start, which migrates the databases; then half of
the accounts get spend limits. At last the old service is replaced in its own folder, where its edge has left what
metering refused to settle, and a start of the old one is tried, which is refused if a script since then says so. Every
chat that was answered must be charged once, no credit may stay held, and the audit must find nothing.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.e2e.upgrades.make_release_data import OldService
from tests.e2e.upgrades.release_data import SECRETS
from tests.support.servers.postgres import Postgres
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply

ACCOUNTS: Final = 6
CLIENTS: Final = 6
PHASE_S: Final = 6.0


class Load:
    """Clients that chat with whatever service is there, on every account in turn."""

    def __init__(self, keys: dict[str, str]) -> None:
        self._keys = list(keys.items())
        self.addresses: list[str] = []
        # By account, and by what became of the chat.
        self.answered: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._chat, args=(number,)) for number in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _chat(self, number: int) -> None:
        while not self._stop.is_set():
            number += 1
            account_id, key = self._keys[number % len(self._keys)]
            place = number // len(self._keys) % len(self.addresses)
            outcome = ask(self.addresses[place], key)
            with self._lock:
                self.outcomes[f"{'old' if place == 0 else 'new'}: {outcome}"] += 1
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


def roll_out(checkout: Path, url: str, folder: Path) -> list[str]:
    """Returns what is wrong in the end."""
    environ = SECRETS | {"LEGATO_DATABASE_URL": url}
    with UpstreamThread() as upstream:
        # Long enough for holds to be there while limits are set.
        upstream.default_reply = Reply(delay_s=0.3)
        old = OldService(checkout, folder, upstream, environ)
        keys: dict[str, str] = {}
        for number in range(ACCOUNTS):
            account_id = old.run("accounts", "create", f"account {number}", "--credits", "5.00")["account_id"]
            keys[account_id] = old.run("keys", "create", "--account", account_id)["api_key"]
        load = Load(keys)
        load.addresses = [old.base_url]
        load.start()
        try:
            time.sleep(PHASE_S)
            with Service(upstream, environ) as new:
                load.addresses = [old.base_url, new.base_url]
                time.sleep(PHASE_S)
                for account_id in list(keys)[::2]:
                    new.legato("limits", "set", account_id, "--month", "4.00")
                print("limits set:", dict(load.outcomes), flush=True)
                time.sleep(PHASE_S)
                load.stop()
                print("load ended:", dict(load.outcomes), flush=True)
                old.process.terminate()
                old.process.wait(60)
                return settle_and_judge(new, upstream, environ, old, load, checkout)
        finally:
            load.stop()
            old.process.kill()


def settle_and_judge(
    new: Service, upstream: Any, environ: dict[str, str], old: OldService, load: Load, checkout: Path
) -> list[str]:
    wrong: list[str] = []
    replaced = Service(upstream, environ)
    replaced.data.rmdir()
    replaced.data.symlink_to(old.data)
    with replaced:
        for account_id, answered in load.answered.items():
            new.settled_balance_nanos(account_id)
            charged = sum(hold.charged_nanos > 0 for hold in new.holds(account_id))
            if charged != answered:
                wrong.append(f"{account_id}: {answered} chats were answered, and {charged} charged")
        wrong += new.audit()
    tried = subprocess.run(
        [checkout / ".venv" / "bin" / "legato", "migrate", "--data", old.data],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    is_refused = tried.returncode == 1 and "newer" in tried.stderr
    print("the old release started again:", tried.stderr.strip() or "it may run beside this one", flush=True)
    if is_refused is not refuses(checkout) or (tried.returncode and not is_refused):
        wrong.append(f"the old release was {'' if is_refused else 'not '}refused: {tried.stderr}")
    return wrong


def refuses(checkout: Path) -> bool:
    """Returns whether a script that the release does not have says that older releases must not run beside it."""
    scripts = list(Path().glob("services/*/migrations/versions/v*.py"))
    newer = [script for script in scripts if not (checkout / script).exists()]
    return any("REFUSES_OLDER = True" in script.read_text() for script in newer)


def main() -> None:
    server = Postgres()
    server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
            wrong = roll_out(Path(sys.argv[1]), server.create_database(), Path(folder))
    finally:
        server.stop()
    print("\n".join(wrong) or "all chats that were answered are charged once; the audit finds nothing")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

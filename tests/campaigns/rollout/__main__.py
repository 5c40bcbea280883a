"""Releases 0.1.0, 0.2.0 and the version of today one after the other on one PostgreSQL, under load (`make rollout`).

Each release starts beside the one before it and migrates the databases; both serve for a while; then the older ends.
The first step sets spend limits while 0.1.0 still runs, which its metering then refuses. The second begins as soon as
the first has ended, and kills 0.2.0 in the middle of an answer. Answers that run are streamed through both migrations.
What the old edges left in their journals is settled by edges of today.

Every chat that was answered must be charged once, no credit may stay held, balances must be what was granted less what
was charged, and the audit must find nothing. Keys, a revoked one too, notes, documents and a session of the console
must be what they were. Clients may see what docs/upgrade.md says, and nothing else.

Then a machine of each release, on SQLite and on PostgreSQL, is upgraded, goes back and is upgraded again, by the
commands of docs/upgrade.md (going_back.py).
"""

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.campaigns.rollout.going_back import TODAY, Machine, go_back, settled_nanos
from tests.campaigns.rollout.load import Load, ask
from tests.campaigns.rollout.session import is_signed_in, sign_in
from tests.e2e.upgrades.release_data import GROUNDING, SECRETS
from tests.support.books import read_holds
from tests.support.releases import COMMITS, ROOT, ReleasedService, install
from tests.support.servers.postgres import Postgres
from tests.support.service import UpstreamThread
from tests.support.upstreams.openai import Recorded, Reply, Upstream

ACCOUNTS: Final = 6
CREDIT_NANOS: Final = 5 * 10**9
PHASE_S: Final = 5.0
# Of the data, so that a session that one release has begun is one of the next.
KEYS: Final = {"LEGATO_ACCESS_TOKEN_SIGNING_KEY": "7a" * 32, "LEGATO_CREDENTIAL_ENCRYPTION_KEY": "1:" + "e1" * 32}
NOTE: Final = "Ada counts in French."
DOCUMENT: Final = "plan.txt"
LONG_QUESTION: Final = "Tell me everything."
LONG_ANSWER: Final = Reply(contents=["word "], repeat=200, event_delay_s=0.1)


class Talker(Upstream):
    """Answers one question at length."""

    def reply_to(self, recorded: Recorded) -> Reply:
        return LONG_ANSWER if LONG_QUESTION in recorded.body.decode() else self.default_reply


class Stream(threading.Thread):
    """Reads a long answer, and how it ended."""

    def __init__(self, service: ReleasedService, key: str) -> None:
        super().__init__(daemon=True)
        self._answer = service.chat(key, LONG_QUESTION, stream=True)
        self.begun = threading.Event()
        self.is_whole = False
        self.start()
        assert self.begun.wait(60)

    def run(self) -> None:
        try:
            for line in self._answer:
                if b'"content":"' in line:
                    self.begun.set()
                self.is_whole = self.is_whole or line.startswith(b"data: [DONE]")
        except OSError:
            return


class Rollout:
    def __init__(self, url: str, folder: Path, upstream: Upstream, opened: ExitStack) -> None:
        self._url = url
        self._folder = folder
        self._upstream = upstream
        self._opened = opened
        # Outside of the folders, since all that share the database share the copy of its audit log.
        copy = str(folder / "audit-copy")
        self._environ = SECRETS | GROUNDING | KEYS | {"LEGATO_DATABASE_URL": url, "LEGATO_AUDIT_COPY": copy}
        self.wrong: list[str] = []
        self.streams: list[tuple[str, Stream]] = []

    def start(self, release: str, folder: Path | None = None) -> ReleasedService:
        """Starts a release, in a folder of its own or in one that another has left."""
        if folder is None:
            folder = self._folder / release
            folder.mkdir()
        files = ROOT if release == TODAY else install(release)
        # 0.1.0 has no console.
        options = [] if release == "0.1.0" else ["--console-port", "0"]
        began_s = time.monotonic()
        service = ReleasedService(files, folder, self._upstream, self._environ, *options)
        self._opened.callback(service.process.kill)
        print(f"{release} serves, {time.monotonic() - began_s:.1f} s after its start", flush=True)
        return service

    def stream(self, service: ReleasedService, account_id: str, key: str) -> Stream:
        stream = Stream(service, key)
        self.streams.append((account_id, stream))
        return stream

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.wrong.append(what)

    def run(self) -> None:
        first = self.start("0.1.0")
        keys: dict[str, str] = {}
        for number in range(ACCOUNTS):
            account_id = first.run("accounts", "create", f"account {number}", "--credits", "5.00")["account_id"]
            keys[account_id] = first.run("keys", "create", "--account", account_id)["api_key"]
        ada, *others = keys
        revoked = first.run("keys", "create", "--account", ada)
        first.run("keys", "revoke", revoked["key_id"])
        first.run("memory", "add", ada, NOTE)
        document = self._folder / DOCUMENT
        document.write_text("The bridge opens in spring.\n")
        first.run("attachments", "add", ada, str(document))

        load = Load(keys)
        load.add("0.1.0", first.base_url)
        load.start()
        self._opened.callback(load.stop)
        time.sleep(PHASE_S)
        through_first = self.stream(first, others[0], keys[others[0]])
        began_s = time.monotonic()
        load.is_migrating = True
        second = self.start("0.2.0")
        load.is_migrating = False
        load.add("0.2.0", second.base_url)
        time.sleep(PHASE_S)
        load.limited.update(others[::2])
        for account_id in others[::2]:
            second.run("limits", "set", account_id, "--month", "4.00")
        session = sign_in(second.run("users", "invite", "--name", "Ada", "--account", ada)["link"])
        time.sleep(PHASE_S)
        load.withdraw("0.1.0")
        through_first.join()
        first.stop()

        through_second = self.stream(second, others[1], keys[others[1]])
        print(f"the second step begins {time.monotonic() - began_s:.0f} s after the first", flush=True)
        load.is_migrating = True
        third = self.start(TODAY)
        load.is_migrating = False
        load.add(TODAY, third.base_url)
        time.sleep(PHASE_S)
        load.withdraw("0.2.0")
        through_second.join()
        cut = self.stream(second, others[2], keys[others[2]])
        second.kill()
        time.sleep(PHASE_S)
        load.stop()
        cut.join()
        for release in ("0.1.0", "0.2.0"):
            # An edge of today, in the folder with the journal of the release.
            self.start(TODAY, self._folder / release)
        print(dict(load.outcomes), flush=True)
        self.judge_clients(load)
        self.judge_books(load, third)
        self.judge_rest(third, ada, keys[ada], revoked["api_key"], session)
        for release in COMMITS:
            self.judge_refusal(release)

    def judge_clients(self, load: Load) -> None:
        # As docs/upgrade.md says: its writes wait for a long migration, and its metering does not know limits.
        allowed = {"0.1.0: 503 during a migration", "0.1.0: 500 with a limit"}
        for outcome, count in load.outcomes.items():
            self.check("answered" in outcome or outcome in allowed, f"{count} clients have seen {outcome}")
        for release in (*COMMITS, TODAY):
            self.check(load.outcomes[f"{release}: answered"] > 0, f"{release} has answered nobody")
        through_first, through_second, cut = (stream for _, stream in self.streams)
        self.check(through_first.is_whole, "the stream through the first migration broke")
        self.check(through_second.is_whole, "the stream through the second migration broke")
        self.check(not cut.is_whole, "the stream of the killed release was not cut")

    def judge_books(self, load: Load, third: ReleasedService) -> None:
        for account_id, answered in load.answered.items():
            expected = answered + sum(account_id == streamed for streamed, _ in self.streams)
            balance_nanos = settled_nanos(third, account_id)
            holds = read_holds(third.data, account_id, self._url)
            charged = [hold.charged_nanos for hold in holds if hold.charged_nanos > 0]
            self.check(
                len(charged) == expected, f"{account_id}: {expected} chats were answered, and {len(charged)} charged"
            )
            left_nanos = CREDIT_NANOS - sum(charged)
            self.check(balance_nanos == left_nanos, f"{account_id} has {balance_nanos} instead of {left_nanos}")
        print("audit:", third.run("audit"), flush=True)

    def judge_rest(self, third: ReleasedService, ada: str, key: str, revoked_key: str, session: str) -> None:
        self.check(ask(third.base_url, revoked_key) == "401", "a revoked key is valid again")
        self.check([note["text"] for note in third.run("memory", "list", ada)] == [NOTE], "the note is gone")
        documents = [document["name"] for document in third.run("attachments", "list", ada)]
        self.check(documents == [DOCUMENT], "the document is gone")
        self.check(ask(third.base_url, key) == "answered", "the key is not valid")
        said = self._upstream.requests[-1].body.decode()
        self.check(NOTE in said, "a chat does not get the note")
        origin = third.run("users", "invite", "--name", "Bob", "--account", ada)["link"].partition("/sign-in")[0]
        self.check(is_signed_in(origin, session), "the session of the console has ended")

    def judge_refusal(self, release: str) -> None:
        """The release must be refused if and only if a script that it does not have says so."""
        files, data = install(release), self._folder / "tried"
        scripts = list(ROOT.glob("services/*/migrations/versions/v*.py"))
        newer = [script for script in scripts if not (files / script.relative_to(ROOT)).exists()]
        must_be = any("REFUSES_OLDER = True" in script.read_text() for script in newer)
        command = [str(files / ".venv" / "bin" / "legato"), "migrate", "--data", str(data)]
        tried = subprocess.run(command, env=self._environ, stderr=subprocess.PIPE, text=True, check=False)
        is_refused = tried.returncode == 1 and "newer" in tried.stderr
        print(f"{release} started again:", tried.stderr.strip() or "it may run beside this one", flush=True)
        self.check(is_refused is must_be and (is_refused or not tried.returncode), f"{release}: {tried.stderr}")


def main() -> None:
    for release in COMMITS:
        install(release)
    server = Postgres()
    server.start()
    try:
        # A short name: the path of a unix socket may have about a hundred characters.
        with (
            tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder,
            UpstreamThread(Talker()) as upstream,
            ExitStack() as opened,
        ):
            # Long enough for holds to be there when something changes.
            upstream.default_reply = Reply(delay_s=0.3)
            rollout = Rollout(server.create_database(), Path(folder), upstream, opened)
            rollout.run()
            wrong = rollout.wrong
            for release in COMMITS:
                for postgres in (None, server):
                    machine = Machine(Path(folder) / f"{release}-{'pg' if postgres else 'lite'}", upstream, postgres)
                    opened.callback(machine.kill)
                    wrong += go_back(release, machine)
                    print(f"back to {release} on {'PostgreSQL' if postgres else 'SQLite'}, and forth", flush=True)
    finally:
        server.stop()
    print("\n".join(wrong) or "everything is what it was, and all chats that were answered are charged once")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

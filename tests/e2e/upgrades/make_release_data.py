"""Makes the data that tests upgrade, by the code of a release itself.

    .venv/bin/python -m tests.e2e.upgrades.make_release_data 0.2.0

On each store it creates accounts with limits, keys (a revoked and an expiring one among them), a note and a document,
has chats answered, and kills everything in the middle of one. The folder then has, for each store, the databases as
SQL, and `facts.json` has what was true at that moment, and the edge's journal.
"""

import base64
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Any

from tests.e2e.upgrades.release_data import GROUNDING, SECRETS, SERVICES
from tests.support.releases import ReleasedService, install
from tests.support.servers.postgres import Postgres
from tests.support.service import UpstreamThread
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

PIECES = 3
# What the version of the server and of pg_dump decide, and the next line would change.
LEFT_OUT = re.compile(r"^(--|SET |SELECT pg_catalog\.set_config|\\|ALTER .* OWNER TO)")


def use(service: ReleasedService, upstream: Upstream, folder: Path) -> dict[str, Any]:
    """Leaves rows of each kind; returns what tests are to find again."""
    ada = service.run("accounts", "create", "Ada", "--credits", "5.00")["account_id"]
    service.run("accounts", "set", ada, "--class", "forte", "--requests-per-minute", "600")
    bob = service.run("accounts", "create", "Bob", "--credits", "1.00")["account_id"]
    service.run("accounts", "suspend", bob)
    service.run("credits", "adjust", ada, "-0.50", "--reason", "a test of adjustments")
    used = service.run("keys", "create", "--account", ada, "--name", "used", "--expires", "never")
    revoked = service.run("keys", "create", "--account", ada, "--name", "revoked")
    service.run("keys", "revoke", revoked["key_id"])
    service.run("keys", "set", used["key_id"], "--concurrent-requests", "20")
    of_bob = service.run("keys", "create", "--account", bob)
    service.run("memory", "add", ada, "Ada counts in French.")
    document = folder / "plan.txt"
    document.write_text("The bridge opens in spring.\n")
    service.run("attachments", "add", ada, str(document))
    for _ in range(3):
        with service.chat(used["api_key"]) as answer:
            assert answer.status == 200
    wait_until(lambda: service.run("credits", "balance", ada)["held_usd"] == "0.00")
    upstream.replies.append(Reply(contents=["one ", "two ", "three "], stall_after=PIECES + 1))
    arrived = threading.Event()
    answer = service.chat(used["api_key"], stream=True)
    threading.Thread(target=read_pieces, args=(answer, arrived), daemon=True).start()
    assert arrived.wait(60)
    balance = service.run("credits", "balance", ada)
    return {
        "account_id": ada,
        "suspended_account_id": bob,
        "key": used["api_key"],
        "key_id": used["key_id"],
        "revoked_key": revoked["api_key"],
        "suspended_key": of_bob["api_key"],
        "balance_usd": balance["balance_usd"],
        "held_usd": balance["held_usd"],
    }


def read_pieces(answer: Any, arrived: threading.Event) -> None:
    seen = 0
    for line in answer:
        seen += b'"content":"' in line
        if seen == PIECES:
            arrived.set()


def dump_sqlite(data: Path) -> dict[str, str]:
    dumps = {}
    for name in SERVICES:
        with sqlite3.connect(data / f"{name}.db") as connection:
            # Text search has tables of its own, which its virtual table creates.
            dumps[name] = "\n".join(connection.iterdump()) + "\n"
    return dumps


def dump_postgresql(server: Postgres, url: str) -> dict[str, str]:
    dumps = {}
    for name in SERVICES:
        options = ["--inserts", f"--schema={name}", "--no-owner", "--no-privileges"]
        command = [str(server.binaries / "pg_dump"), *options, url]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        lines = [line for line in text.splitlines() if line and not LEFT_OUT.match(line)]
        dumps[name] = "\n".join(lines) + "\n"
    return dumps


def make(files: Path, target: Path) -> None:
    facts = {}
    server = Postgres()
    server.start()
    try:
        for store in ("sqlite", "postgresql"):
            url = server.create_database() if store == "postgresql" else ""
            with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, UpstreamThread() as upstream:
                environ = SECRETS | GROUNDING | ({"LEGATO_DATABASE_URL": url} if url else {})
                service = ReleasedService(files, Path(name), upstream, environ)
                try:
                    facts[store] = use(service, upstream, Path(name))
                finally:
                    service.kill()
                dumps = dump_postgresql(server, url) if url else dump_sqlite(service.data)
                shutil.rmtree(target / store, ignore_errors=True)
                (target / store).mkdir(parents=True)
                for service_name, text in dumps.items():
                    (target / store / f"{service_name}.sql").write_text(text)
                [journal] = [file for file in (service.data / "journals").iterdir() if file.stat().st_size]
                packed = base64.b64encode(zlib.compress(journal.read_bytes())).decode()
                facts[store] |= {"journal": journal.name, "journal_zlib": packed}
    finally:
        server.stop()
    (target / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    version = sys.argv[1]
    make(install(version), Path(__file__).parent / f"release_{version.replace('.', '_')}")

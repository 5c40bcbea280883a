"""The commands that the runbook has for a backup, while the service is in use."""

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import openai

from services.chassis.database.database import open_database
from services.metering.auditor import audit
from tests.support.service import Service

RUNBOOK = Path(__file__).parents[3] / "docs" / "runbooks" / "restore-the-database.md"


def documented_commands() -> str:
    """Returns the block of commands that copies SQLite's files."""
    blocks = re.findall(r"(?:^    .*\n)+", RUNBOOK.read_text(), re.MULTILINE)
    [commands] = [block for block in blocks if "sqlite3" in block]
    return str(commands)


def write_shell(folder: Path) -> Path:
    """Makes a folder with a `sqlite3`, which is used on machines that have none of their own."""
    shell = folder / "bin" / "sqlite3"
    shell.parent.mkdir()
    shell.write_text(
        f"#!{sys.executable}\nimport sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for row in connection.execute(sys.argv[2]):\n    print(*row, sep='|')\n"
    )
    shell.chmod(0o700)
    return shell.parent


def accounts_in(file: Path) -> set[str]:
    connection = sqlite3.connect(file)
    try:
        return {account_id for (account_id,) in connection.execute("SELECT account_id FROM accounts")}
    finally:
        connection.close()


def test_backup_of_a_service_in_use_is_whole_and_every_account_of_the_ledger_is_in_auth(
    service: Service, tmp_path: Path
) -> None:
    stop = threading.Event()
    answered = threading.Semaphore(0)

    def chat() -> None:
        while not stop.is_set():
            # A new account each time, as they are what the order of the copies is about.
            client = openai.OpenAI(base_url=service.base_url, api_key=service.new_key(service.new_account()))
            client.chat.completions.create(model="mezzo", messages=[{"role": "user", "content": "Hello"}])
            answered.release()

    (tmp_path / ".legato").symlink_to(service.data)
    chatting = [threading.Thread(target=chat) for _ in range(2)]
    for thread in chatting:
        thread.start()
    try:
        for _ in range(4):
            assert answered.acquire(timeout=60)
        ended = subprocess.run(
            ["/bin/sh", "-e", "-c", documented_commands()],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{os.environ['PATH']}:{write_shell(tmp_path)}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answered.acquire(timeout=60)
    finally:
        stop.set()
        for thread in chatting:
            thread.join()

    copied = [name for name in ("router", "metering", "auth") if (tmp_path / "backup" / f"{name}.db").exists()]
    assert ended.stdout.split() == ["ok"] * len(copied)
    assert {"metering", "auth"} <= set(copied)
    accounts = accounts_in(tmp_path / "backup" / "metering.db")
    assert accounts
    assert accounts <= accounts_in(tmp_path / "backup" / "auth.db")
    restored = tmp_path / "restored"
    shutil.copytree(tmp_path / "backup", restored)
    database = open_database("metering", "", restored)
    assert asyncio.run(audit(database)) == []
    database.close()

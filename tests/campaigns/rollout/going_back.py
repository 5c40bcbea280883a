"""Upgrades one machine from a release to the version of today, goes back, and upgrades again, by the commands of
docs/upgrade.md as they stand there."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from cli.backups.restored_database import url_of
from services.chassis.money import parse_usd
from tests.campaigns.rollout.load import ask
from tests.support.releases import ROOT, install
from tests.support.servers.postgres import Postgres
from tests.support.service import ROUTES
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

PAGE: Final = ROOT / "docs" / "upgrade.md"
TODAY: Final = "today"
CHATS: Final = 3
NOTE: Final = "Ada counts in French."
# What the page leaves to its reader.
BACKUPS: Final = "/var/backups/legato"
CHECKOUT: Final = "git checkout vX.Y.Z && make setup"
NEW_DATABASE: Final = re.compile(r"Set LEGATO_DATABASE_URL to the database (\w+),")


def commands_of(heading: str) -> list[str]:
    """Returns the commands of a section of the page, without comments."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    lines = section.partition("\n## ")[0].splitlines()
    return [line.partition("#")[0].strip() for line in lines if line.startswith("    ")]


class Commands(Protocol):
    def run(self, *arguments: str) -> Any:
        """Runs `legato`; returns what it says."""


class Machine:
    """One machine with its data in `.legato`, and one release at a time."""

    def __init__(self, folder: Path, upstream: Upstream, postgres: Postgres | None) -> None:
        self._folder = folder
        folder.mkdir()
        self._routes = folder / "routes.toml"
        self._routes.write_text(ROUTES.format(base_url=upstream.base_url))
        self._url = postgres.create_database() if postgres else ""
        self._programs = str(postgres.binaries) if postgres else ""
        self._release = ""
        self._process: subprocess.Popen[str] | None = None
        self.base_url = ""

    def check_out(self, release: str) -> None:
        self._release = release

    def follow(self, heading: str, release: str) -> None:
        """Runs the commands of a section, which end with this release."""
        for command in commands_of(heading):
            if command == CHECKOUT:
                self.check_out(release)
            elif command == "legato up":
                self.up()
            elif command == "kill -TERM PID":
                self.stop()
            else:
                self._run_as_told(command)

    def up(self) -> None:
        # 0.1.0 has no console.
        console = [] if self._release == "0.1.0" else ["--console-port", "0"]
        command = ["legato", "up", "--port", "0", "--workers", "1", "--routes", str(self._routes), *console]
        self._process = subprocess.Popen(
            command, cwd=self._folder, env=self._environ, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        word, _, self.base_url = self._process.stdout.readline().strip().partition(" ")
        assert word == "ready", f"{self._release} did not start"

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(120) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def run(self, *arguments: str) -> Any:
        return json.loads(self._run(["legato", *arguments, "--json"]))

    def _run_as_told(self, command: str) -> None:
        command = command.replace(BACKUPS, str(self._folder / "backups"))
        if self._url:
            command = command.removesuffix(" --replace")
        said = self._run(["bash", "-ec", command])
        if self._url and (named := NEW_DATABASE.search(said)):
            self._url = url_of(self._url, named[1])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self._folder, env=self._environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self._release}: {command}: {done.stderr}{done.stdout}"
        return done.stdout

    @property
    def _environ(self) -> Mapping[str, str]:
        files = ROOT if self._release == TODAY else install(self._release)
        path = [str(files / ".venv" / "bin"), self._programs, os.environ["PATH"]]
        given = {"LEGATO_MEMORY": "true", "PATH": ":".join(filter(None, path))}
        return os.environ | given | ({"LEGATO_DATABASE_URL": self._url} if self._url else {})


def go_back(release: str, machine: Machine) -> list[str]:
    """Returns what is not as it was before the upgrade, or not as it should be after the second one."""
    wrong: list[str] = []

    def check(is_right: bool, what: str) -> None:
        if not is_right:
            wrong.append(f"{release}: {what}")

    def chat(key: str) -> None:
        for _ in range(CHATS):
            check((answer := ask(machine.base_url, key)) == "answered", f"a chat is answered with {answer}")

    machine.check_out(release)
    machine.up()
    account_id = machine.run("accounts", "create", "Ada", "--credits", "5.00")["account_id"]
    key = machine.run("keys", "create", "--account", account_id)["api_key"]
    revoked = machine.run("keys", "create", "--account", account_id)
    machine.run("keys", "revoke", revoked["key_id"])
    machine.run("memory", "add", account_id, NOTE)
    chat(key)
    before_nanos = settled_nanos(machine, account_id)

    machine.follow("One machine", TODAY)
    chat(key)
    check(settled_nanos(machine, account_id) < before_nanos, "chats of today are not charged")
    later = machine.run("keys", "create", "--account", account_id)["api_key"]
    check(ask(machine.base_url, later) == "answered", "a key of today is not valid today")

    machine.follow("Going back", release)
    check(settled_nanos(machine, account_id) == before_nanos, "the balance is not that of the backup")
    for gone in (revoked["api_key"], later):
        check(ask(machine.base_url, gone) == "401", "a key is valid that the backup does not have, or has revoked")
    check([note["text"] for note in machine.run("memory", "list", account_id)] == [NOTE], "the note is gone")
    chat(key)
    back_nanos = settled_nanos(machine, account_id)
    check(back_nanos < before_nanos, "chats are not charged after going back")

    machine.follow("One machine", TODAY)
    check(settled_nanos(machine, account_id) == back_nanos, "the second upgrade changed the balance")
    chat(key)
    check(ask(machine.base_url, revoked["api_key"]) == "401", "a revoked key is valid again")
    machine.stop()
    return wrong


def settled_nanos(service: Commands, account_id: str) -> int:
    """Returns the balance once no request holds any of it."""
    wait_until(lambda: service.run("credits", "balance", account_id)["held_usd"] == "0.00")
    return parse_usd(service.run("credits", "balance", account_id)["balance_usd"])

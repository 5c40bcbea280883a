"""`python -m bench.onthebench.prepare FOLDER`: makes an entry's data folder, with the key that its definition declares.

The service makes keys itself, and stores none of them. The benchmark sends a key that is written down before anything
runs, so one that was made is replaced by it here, while the service does not run.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from services.auth.core.key_format import parse
from services.auth.core.peppers import Peppers
from services.chassis.versioned_secrets import parse_versioned_secrets

LEGATO: Final = Path(sys.executable).with_name("legato")
# Far more than a run can spend.
CREDITS: Final = "1000000"
READY: Final = "ready "
END_S: Final = 60


def prepare(folder: Path, settings: Mapping[str, str] = os.environ) -> None:
    """Makes `folder/data` for the definition in `folder`. Does nothing if it is there."""
    data, declared = folder / "data", json.loads((folder / "definition.json").read_text())["auth"]
    if data.exists():
        return
    (folder / "mock.key").write_text("played")
    routes = folder / "routes.of-preparation.toml"
    routes.write_text(rendered(folder / "routes.gen.toml.tmpl", {"MOCK_PORT": "1", "GW_DIR": str(folder)}))
    command: list[str | Path] = [LEGATO, "up", "--data", data, "--routes", routes, "--port", "0", "--no-console"]
    service = subprocess.Popen(command, env=dict(settings), stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        if not any(READY in line for line in service.stdout):
            raise click.ClickException("The service did not start.")
        account = _legato(settings, data, "accounts", "create", "benchmark", "--credits", CREDITS)["account_id"]
        made = _legato(settings, data, "keys", "create", "--account", account)["key_id"]
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=END_S)
        routes.unlink()
    _declare(data, made, declared)


def rendered(template: Path, values: Mapping[str, str]) -> str:
    """Returns a template with the benchmark's values in it."""
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _declare(data: Path, made_id: str, declared: str) -> None:
    """Puts the declared key in the place of the one that was made."""
    key = parse(declared)
    if key is None:
        raise click.ClickException("The definition's `auth` is no key of this service.")
    peppers = Peppers(parse_versioned_secrets("key-peppers", (data / "key-peppers").read_text()))
    stored = peppers.digest(key)
    with sqlite3.connect(data / "auth.db") as connection:
        connection.execute(
            "UPDATE api_keys SET key_id = ?, digest = ?, pepper_version = ? WHERE key_id = ?",
            (key.key_id, stored.digest, stored.pepper_version, made_id),
        )
    connection.close()


def _legato(settings: Mapping[str, str], data: Path, *arguments: str) -> Any:
    command: list[str | Path] = [LEGATO, *arguments, "--data", data, "--json"]
    return json.loads(subprocess.run(command, env=dict(settings), check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))

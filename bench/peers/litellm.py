"""LiteLLM's proxy, with the mock upstream as the only provider: bare, with one master key and no database; and with its
keys, budgets and PostgreSQL.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench.chats import Upstream
from bench.peers.gateways import free_port, started_gateway
from bench.peers.installation import NODE, add_npm, install_python
from bench.report import Progress
from bench.targets import CREDITS, DATABASE, LITELLM, LITELLM_WITH_KEYS, Target, TargetMissing
from tests.support.servers.postgres import Postgres

REQUIREMENT: Final = "litellm[proxy]==1.108.7"
# Its own package asks for a newer list of authorities than some mirrors have; nothing here uses one.
ANY_VERSION: Final = ("certifi",)
# Its database client.
WITH_DATABASE: Final = (REQUIREMENT, "prisma==0.15.0", "psycopg[binary]==3.3.9")
MASTER_KEY: Final = "sk-played"
MODEL: Final = "mock-model"
ENGINES_S: Final = 300
# Its table of prices comes with it: fetching a newer one delays the start.
OFFLINE: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
REQUEST_S: Final = 10


@contextmanager
def started_litellm(upstream: Upstream, folder: Path, progress: Progress) -> Iterator[Target]:
    environment = install_python(REQUIREMENT, any_version=ANY_VERSION)
    port = free_port()
    target = Target(LITELLM, port, {}, api_key=MASTER_KEY)
    command = _command(environment, upstream, folder, port)
    with started_gateway(target, command, folder, progress, OFFLINE) as started:
        yield started


@contextmanager
def started_litellm_with_keys(upstream: Upstream, folder: Path, progress: Progress) -> Iterator[Target]:
    """Starts it with a database. Its client of databases has programs that come from no package registry, but from
    binaries.prisma.sh: without that host, this target is missing."""
    environment = install_python(*WITH_DATABASE, any_version=ANY_VERSION)
    # For the program that makes the client.
    add_npm(environment)
    environ = {"PATH": os.pathsep.join([str(environment / "bin"), str(NODE.parent), os.environ["PATH"]])}
    _make_client(environment, environ)
    postgres = Postgres(durable=True)
    postgres.start()
    try:
        environ["DATABASE_URL"] = postgres.create_database()
        port = free_port()
        target = Target(LITELLM_WITH_KEYS, port, {DATABASE: postgres.process_id})
        command = _command(environment, upstream, folder, port)
        with started_gateway(target, command, folder, progress, {**environ, **OFFLINE}, _with_key) as started:
            yield started
    finally:
        postgres.stop()


def _command(environment: Path, upstream: Upstream, folder: Path, port: int) -> list[str | Path]:
    settings = folder / "litellm.yaml"
    provider = {"model": f"openai/{MODEL}", "api_base": upstream.base_url, "api_key": "played"}
    # JSON is YAML too.
    settings.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": MODEL, "litellm_params": provider}],
                "general_settings": {"master_key": MASTER_KEY},
            }
        )
    )
    command: list[str | Path] = [environment / "bin" / "litellm", "--config", settings]
    return [*command, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


def _make_client(environment: Path, environ: Mapping[str, str]) -> None:
    """Generates the database client, once in each environment."""
    [schema] = environment.glob("lib/python*/site-packages/litellm_proxy_extras/schema.prisma")
    command: list[str | Path] = [environment / "bin" / "prisma", "generate", "--schema", schema]
    try:
        subprocess.run(
            command, env={**os.environ, **environ}, check=True, capture_output=True, text=True, timeout=ENGINES_S
        )
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip() or error.stdout.strip())[-500:]
        raise TargetMissing(f"{LITELLM_WITH_KEYS}: the programs of its database client are missing: {why}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetMissing(f"{LITELLM_WITH_KEYS}: its database client could not be made: {error}") from None


def _with_key(target: Target) -> Target | None:
    """Returns the target with a key that has a budget."""
    request = Request(
        f"http://127.0.0.1:{target.port}/key/generate",
        json.dumps({"models": [MODEL], "max_budget": float(CREDITS), "budget_duration": "30d"}).encode(),
        {"authorization": f"Bearer {MASTER_KEY}", "content-type": "application/json"},
    )
    try:
        with urlopen(request, timeout=REQUEST_S) as response:
            return target._replace(api_key=json.load(response)["key"])
    except (URLError, OSError):
        return None

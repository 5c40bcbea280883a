"""Portkey and TensorZero, configured for speed, with the mock upstream as the only provider; and the start of any peer.

They do less than Legato: neither checks a key, holds or charges credit.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.chats import AnswersWrong, Upstream
from bench.children import printed_address
from bench.peers.installation import NODE, install_node, install_python
from bench.report import Progress
from bench.targets import ONE_CHAT, PORTKEY, TENSORZERO, Target, TargetMissing, port_of
from tests.support.servers.child import start_child

TENSORZERO_REQUIREMENT: Final = "tensorzero==2026.6.0"
PORTKEY_PACKAGE: Final = Path(__file__).with_name("portkey") / "package.json"
START_S: Final = 300.0


@contextmanager
def started_portkey(upstream: Upstream, folder: Path, progress: Progress) -> Iterator[Target]:
    program = install_node(PORTKEY_PACKAGE) / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    port = free_port()
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream.base_url}
    target = Target(PORTKEY, port, {}, headers=headers)
    with started_gateway(target, [NODE, program, f"--port={port}", "--headless"], folder, progress) as started:
        yield started


@contextmanager
def started_tensorzero(upstream: Upstream, folder: Path, progress: Progress) -> Iterator[Target]:
    environment = install_python(TENSORZERO_REQUIREMENT)
    settings = folder / "tensorzero.toml"
    settings.write_text(
        f"""
[models.mock-model]
routing = ["played"]

[models.mock-model.providers.played]
type = "openai"
model_name = "mock-model"
api_base = "{upstream.base_url}/"
api_key_location = "none"
"""
    )
    program = Path(__file__).with_name("tensorzero_gateway.py")
    target = Target(TENSORZERO, 0, {}, model="tensorzero::model_name::mock-model", path="/openai/v1/chat/completions")
    command = [environment / "bin" / "python", program, settings]
    with started_gateway(target, command, folder, progress) as started:
        yield started


@contextmanager
def started_gateway(
    target: Target,
    command: Sequence[str | Path],
    folder: Path,
    progress: Progress,
    environ: Mapping[str, str] | None = None,
    prepare: Callable[[Target], Target | None] = lambda target: target,
) -> Iterator[Target]:
    """Starts a target and yields it after its first answer. A process without a given port prints its address.
    `prepare` returns the target with what it needs once it runs, for example a key, or None if it does not run yet."""
    output = folder / f"{target.name}.log"
    began_at_s = time.monotonic()
    process = start_child(command, output, last_signal=signal.SIGKILL, environ={**_environ(), **(environ or {})})
    try:
        while (answering := _if_answering(target, output, folder, progress, prepare)) is None:
            if process.poll() is not None or time.monotonic() - began_at_s > START_S:
                raise TargetMissing(f"{target.name} did not start:\n{output.read_text()[-500:]}")
            time.sleep(0.02)
        first_answer_s = time.monotonic() - began_at_s
        yield answering._replace(
            processes={target.name: process.pid, **target.processes}, first_answer_s=first_answer_s, is_peer=True
        )
    finally:
        _end(process)


def _if_answering(
    target: Target, output: Path, folder: Path, progress: Progress, prepare: Callable[[Target], Target | None]
) -> Target | None:
    if not target.port:
        address = printed_address(output)
        if not address:
            return None
        target = target._replace(port=port_of(address))
    prepared = prepare(target)
    if prepared is None:
        return None
    try:
        prepared.put_load(ONE_CHAT, folder, progress, chats=1)
    except AnswersWrong:
        return None
    return prepared


def _environ() -> Mapping[str, str]:
    """Returns the environment without our modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port

"""The router as a process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import ListModelsRequest
from legato_protos.router.v1.router_pb2_grpc import RouterServiceStub
from services.chassis.rpc.channel import open_sync_channel
from services.chassis.telemetry.log import Log
from tests.services.router.harness import connected_router, read
from tests.support.upstreams.openai import Reply, Upstream

COMMAND = [sys.executable, "-m", "services.router"]


def test_router_serves_until_it_is_asked_to_end(socket_folder: Path) -> None:
    process = subprocess.Popen(
        COMMAND, env={**os.environ, "LEGATO_DATA": str(socket_folder)}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "service.started" in process.stderr.readline()
    with open_sync_channel(f"unix:{socket_folder}/run/router.sock") as channel:
        assert RouterServiceStub(channel).ListModels(ListModelsRequest(), timeout=60).models
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    process.stderr.close()


ROUTES = """
[providers.host]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.model]
provider = "host"
name = "model"
context_tokens = 10000
max_output_tokens = 1000
[classes]
mezzo = {{ models = ["model"] }}
forte = {{ models = ["model"] }}
fortissimo = {{ models = ["model"] }}
"""


@pytest.mark.parametrize("ordinary", [False, True], ids=["exchange", "rpc"])
async def test_chat_under_way_is_finished_before_the_process_ends(
    ordinary: bool, socket_folder: Path, upstream: Upstream, log: Log
) -> None:
    (socket_folder / "routes.toml").write_text(ROUTES.format(base_url=upstream.base_url))
    upstream.replies.append(Reply(repeat=10, event_delay_s=0.02))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        env={**os.environ, "LEGATO_DATA": str(socket_folder), "LEGATO_ROUTES": str(socket_folder / "routes.toml")},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    await process.stderr.readline()
    async with connected_router(f"unix:{socket_folder}/run/router.sock", log) as router:
        call = router.open(ordinary=ordinary)
        assert await call.receive()
        process.send_signal(signal.SIGTERM)
        answer = await read(call)
        assert answer.text.endswith("Hello, world!")
        assert answer.finished.finish_reason == "stop"
        async with asyncio.timeout(60):
            assert await process.wait() == 0


def test_mistakes_in_the_routes_are_told_before_anything_is_opened(socket_folder: Path) -> None:
    routes = socket_folder / "routes.toml"
    routes.write_text("[providers.a]\nkind = 'x'\n")
    environment = {**os.environ, "LEGATO_DATA": str(socket_folder), "LEGATO_ROUTES": str(routes)}
    ended = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert "providers.a.kind" in ended.stderr
    assert "classes.mezzo: is missing" in ended.stderr
    assert not (socket_folder / "run").exists()

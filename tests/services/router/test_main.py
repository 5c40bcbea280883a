"""The router as a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from protos.router.v1.router_pb2 import ListModelsRequest
from protos.router.v1.router_pb2_grpc import RouterServiceStub
from services.chassis.channel import open_sync_channel

COMMAND = [sys.executable, "-m", "services.router"]


def test_router_serves_until_it_is_asked_to_end(socket_folder: Path) -> None:
    process = subprocess.Popen(
        COMMAND, env={**os.environ, "LEGATO_DATA": str(socket_folder)}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "service.started" in process.stderr.readline()
    with open_sync_channel(f"unix:{socket_folder}/run/router.sock") as channel:
        assert RouterServiceStub(channel).ListModels(ListModelsRequest(), timeout=5).models
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    process.stderr.close()


def test_mistakes_in_the_routes_are_told_before_anything_is_opened(socket_folder: Path) -> None:
    routes = socket_folder / "routes.toml"
    routes.write_text("[providers.a]\nkind = 'x'\n")
    environment = {**os.environ, "LEGATO_DATA": str(socket_folder), "LEGATO_ROUTES": str(routes)}
    ended = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert "providers.a.kind" in ended.stderr
    assert "classes.mezzo: is missing" in ended.stderr
    assert not (socket_folder / "run").exists()

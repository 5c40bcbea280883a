import json
import os
from pathlib import Path

from click.testing import CliRunner

from cli.main import legato
from cli.supervision import data_folder


def test_processes_that_are_gone_or_do_not_listen_are_told_apart(socket_folder: Path) -> None:
    data_folder.prepare(socket_folder)
    lock = data_folder.lock_for_supervisor(socket_folder)
    health = {"protocol": "grpc", "socket": str(socket_folder / "nothing.sock")}
    states = [
        {"name": "auth", "pid": None, "restarts": 3, "health": health},
        {"name": "router", "pid": 1, "restarts": 0, "health": health},
    ]
    data_folder.write_processes(socket_folder, {"processes": states})
    shown = json.loads(CliRunner().invoke(legato, ["status", "--json", "--data", str(socket_folder)]).stdout)
    os.close(lock)
    assert shown == [
        {"name": "auth", "pid": None, "restarts": 3, "health": "down"},
        {"name": "router", "pid": 1, "restarts": 0, "health": "not serving"},
    ]


def test_supervisor_that_has_started_nothing_yet_is_an_empty_list(socket_folder: Path) -> None:
    data_folder.prepare(socket_folder)
    lock = data_folder.lock_for_supervisor(socket_folder)
    result = CliRunner().invoke(legato, ["status", "--json", "--data", str(socket_folder)])
    os.close(lock)
    assert (result.exit_code, result.stdout) == (0, "[]\n")

import socket
from pathlib import Path

import pytest

from services.chassis.rpc.listening import listen_for_rpcs
from services.chassis.settings import SettingsError


def test_path_is_for_its_owner_alone(socket_folder: Path) -> None:
    path = socket_folder / "chat.sock"
    with listen_for_rpcs(f"unix:{path}"), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert path.stat().st_mode & 0o777 == 0o700


def test_socket_that_a_killed_process_has_left_is_replaced(socket_folder: Path) -> None:
    path = socket_folder / "chat.sock"
    listen_for_rpcs(f"unix:{path}").close()
    with listen_for_rpcs(f"unix:{path}"), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


@pytest.mark.parametrize(
    ("listen", "client"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
)
def test_port_is_reached(listen: str, client: str) -> None:
    with listen_for_rpcs(listen) as listener:
        socket.create_connection((client, listener.getsockname()[1])).close()


@pytest.mark.parametrize("listen", ["203.0.113.7:0", "127.0.0.1", "127.0.0.1:99999", "unix:/nowhere/chat.sock"])
def test_address_that_cannot_be_had_is_named(listen: str) -> None:
    with pytest.raises(SettingsError, match=f"cannot listen on {listen}"):
        listen_for_rpcs(listen)

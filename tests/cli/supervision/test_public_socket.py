import os
import socket

import pytest

from cli.supervision.public_socket import CannotListen, base_url, listen, listen_for_console


def test_a_free_port_is_found_and_told() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert base_url(listener, "127.0.0.1") == f"http://127.0.0.1:{port}/v1"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    with listen("::1", 0) as listener:
        assert base_url(listener, "::1") == f"http://[::1]:{listener.getsockname()[1]}/v1"


def test_a_port_in_use_says_what_to_do() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(CannotListen) as refusal:
        listen("127.0.0.1", listener.getsockname()[1])
    port = str(refusal.value.message)
    assert "is in use: choose another with --port, or stop what listens there" in port


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_says_what_to_do(host: str) -> None:
    with pytest.raises(CannotListen, match="is not an address of this machine: choose another with --host"):
        listen(host, 0)


def test_the_socket_is_not_inherited_by_chance() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert not os.get_inheritable(listener.fileno())


def test_the_console_listens_wherever_localhost_leads() -> None:
    listeners = listen_for_console("127.0.0.1", 0)
    try:
        assert len({listener.getsockname()[1] for listener in listeners}) == 1
        assert listeners[0].getsockname()[0] == "127.0.0.1"
        with pytest.raises(CannotListen, match="--console-port"):
            listen_for_console("127.0.0.1", listeners[0].getsockname()[1])
    finally:
        for listener in listeners:
            listener.close()

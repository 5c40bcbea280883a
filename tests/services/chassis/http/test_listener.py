"""The socket that a server listens on."""

import pytest

from services.chassis.http.listener import open_listener
from services.chassis.settings import SettingsError


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_that_is_taken_is_a_wrong_setting(host: str) -> None:
    with open_listener(host, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on {host}:{port}: Address already in use"):
            open_listener(host, port)

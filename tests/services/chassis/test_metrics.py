import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from services.chassis.metrics import serve_metrics
from services.chassis.settings import SettingsError


def get(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        text: str = response.read().decode()
        return text


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("legato_example", "An example.", registry=registry).set(7)
    return registry


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
def test_what_is_in_the_registry_is_served_until_the_end(listen: str, registry: CollectorRegistry) -> None:
    with serve_metrics(listen, registry) as address:
        assert get(address) == "# HELP legato_example An example.\n# TYPE legato_example gauge\nlegato_example 7.0\n"
    with pytest.raises(urllib.error.URLError):
        get(address)


def test_address_that_is_taken_is_named(registry: CollectorRegistry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"cannot serve metrics on {listen}"), serve_metrics(listen, registry):
            pass


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "nowhere.invalid:0", "127.0.0.1:port"])
def test_address_that_is_none_is_named(listen: str, registry: CollectorRegistry) -> None:
    with pytest.raises(SettingsError, match=f"cannot serve metrics on {listen}"), serve_metrics(listen, registry):
        pass

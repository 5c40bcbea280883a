import pytest

from edge.backends import position as position_module
from edge.backends.position import EdgePosition, is_local, parse_position
from services.chassis.rpc.subset import ClientPosition, ring
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

PORT = 8080
OTHERS = {"192.0.2.1:8080", "192.0.2.2:8080"}
OURS = "127.0.0.1:8080"


class Listed:
    """Stands in for DNS."""

    def __init__(self, addresses: set[str]) -> None:
        self.addresses = addresses
        self.is_away = False

    async def __call__(self, name: str) -> set[str]:
        if self.is_away:
            raise OSError
        return self.addresses


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Listed:
    listed = Listed({OURS, *OTHERS})
    monkeypatch.setattr(position_module, "resolve", listed)
    monkeypatch.setattr(position_module, "is_local", lambda address: address.startswith("127."))
    return listed


async def test_a_given_position_counts_from_one(log: Log) -> None:
    assert await EdgePosition(parse_position("2/8"), "", PORT, log).find() == ClientPosition(1, 8)
    assert await EdgePosition(parse_position(""), "", PORT, log).find() is None


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3"])
def test_a_position_that_there_is_not_is_a_mistake(text: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_EDGE_POSITION"):
        parse_position(text)


async def test_an_edge_finds_itself_in_the_list_of_all_edges(listed: Listed, log: Log) -> None:
    expected = ring(listed.addresses).index(OURS)
    assert await EdgePosition(None, "edges:8080", PORT, log).find() == ClientPosition(expected, 3)


def test_only_addresses_of_this_machine_are_local() -> None:
    assert is_local("127.0.0.1:8080")
    assert not is_local("8.8.8.8:8080")


async def test_of_several_edges_on_a_machine_the_port_decides(listed: Listed, log: Log) -> None:
    listed.addresses = {OURS, "127.0.0.1:8081"}
    expected = ring(listed.addresses).index("127.0.0.1:8081")
    assert await EdgePosition(None, "edges:8080", 8081, log).find() == ClientPosition(expected, 2)


async def test_an_edge_that_is_not_listed_keeps_its_position(listed: Listed, log: Log) -> None:
    position = EdgePosition(None, "edges:8080", PORT, log)
    found = await position.find()
    listed.addresses = OTHERS
    assert await position.find() == found
    listed.is_away = True
    assert await position.find() == found
    assert await EdgePosition(None, "edges:8080", PORT, log).find() is None

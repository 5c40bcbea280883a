"""A text that may become the routes file names no API key for another server than the file on disk does."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.models.states import ModelStates
from services.router.providers import open_provider
from services.router.routes.reload import Reload
from services.router.routes.routes import RoutesMistaken, load_routes
from services.router.routes.target import DEFAULT_TIMEOUTS

OWN = "http://host.test/v1"
THIEF = "http://thief.test/v1"
FILE = """
[providers.host]
kind = "openai"
base_url = "http://host.test/v1"
zero_retention = true
api_key_env = "HOST_API_KEY"
[models.big]
provider = "host"
name = "vendor/big"
context_tokens = 10000
max_output_tokens = 1000
[classes.mezzo]
models = ["big"]
[classes.forte]
models = ["big"]
[classes.fortissimo]
models = ["big"]
"""
MOVED = "providers.host: would get the API key of another server: change this where the file is"


@pytest.fixture
async def reload(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reload]:
    monkeypatch.setenv("HOST_API_KEY", "canary-of-a-key")
    path = tmp_path / "routes.toml"
    path.write_text(FILE)
    open_one = partial(open_provider, local_model_socket=tmp_path / "no-model.sock")
    model_states = ModelStates(load_routes(path), open_one, SystemClock(), log)
    yield Reload(path, DEFAULT_TIMEOUTS, model_states, log)
    await model_states.aclose()


def mistakes_of(reload: Reload, text: str) -> list[str]:
    try:
        reload.read(text)
    except RoutesMistaken as error:
        return list(error.mistakes)
    return []


def test_text_that_takes_a_key_to_another_server_is_refused(reload: Reload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_KEY_PEPPERS", "1:pepper")
    for wanted, what in (
        (FILE.replace(OWN, THIEF), "would get the API key of another server"),
        (FILE.replace("HOST_API_KEY", "LEGATO_KEY_PEPPERS"), "names a variable, LEGATO_KEY_PEPPERS"),
        (FILE.replace('env = "HOST_API_KEY"', 'file = "/etc/hostname"'), "outside the folders"),
    ):
        assert what in "".join(mistakes_of(reload, wanted))
    assert mistakes_of(reload, FILE) == []


def test_key_that_the_file_no_longer_names_goes_to_no_other_server_either(reload: Reload, tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    assert mistakes_of(reload, FILE) == []
    path.write_text(FILE.replace('api_key_env = "HOST_API_KEY"\n', ""))
    thief = FILE.replace(OWN, THIEF)
    assert mistakes_of(reload, thief) == [MOVED]
    assert mistakes_of(reload, FILE) == []
    # Where the file is, that may be changed.
    path.write_text(thief)
    assert mistakes_of(reload, thief) == []
    path.write_text(FILE)
    assert mistakes_of(reload, thief) == []


@pytest.mark.parametrize("alias", ["./host.key", "../{folder}/host.key", "{path}", "link.key"])
def test_key_file_goes_to_no_other_server_by_another_name_of_it(reload: Reload, tmp_path: Path, alias: str) -> None:
    (tmp_path / "host.key").write_text("canary-of-a-key")
    (tmp_path / "link.key").symlink_to("host.key")
    text = FILE.replace('api_key_env = "HOST_API_KEY"', 'api_key_file = "host.key"')
    (tmp_path / "routes.toml").write_text(text)
    own = text.replace('"host.key"', f'"{alias.format(folder=tmp_path.name, path=tmp_path / "host.key")}"')
    assert mistakes_of(reload, own.replace(OWN, THIEF)) == [MOVED]
    assert mistakes_of(reload, own) == []


def test_keys_of_a_text_are_read_only_once_their_server_is_known_to_get_them(reload: Reload, tmp_path: Path) -> None:
    # It would be told that there is no such file.
    nowhere = f"{tmp_path.parent}/nowhere/host.key"
    [mistake] = mistakes_of(reload, FILE.replace('env = "HOST_API_KEY"', f'file = "{nowhere}"'))
    assert mistake.startswith(f"providers.host: names a file, {nowhere}, outside the folders")


def test_file_behind_a_variable_passes_for_no_other_server(
    reload: Reload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host.key").write_text("canary-of-a-key")
    monkeypatch.delenv("HOST_API_KEY")
    monkeypatch.setenv("HOST_API_KEY_FILE", str(tmp_path / "host.key"))
    by_file = FILE.replace('api_key_env = "HOST_API_KEY"', 'api_key_file = "host.key"')
    assert mistakes_of(reload, by_file) == []
    assert mistakes_of(reload, by_file.replace(OWN, THIEF)) == [MOVED]


def test_variable_that_leads_to_the_file_of_a_key_passes_for_no_other_server(
    reload: Reload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host.key").write_text("canary-of-a-key")
    (tmp_path / "routes.toml").write_text(FILE.replace('env = "HOST_API_KEY"', 'file = "host.key"'))
    monkeypatch.setenv("OTHER_KEY_FILE", str(tmp_path / "host.key"))
    assert mistakes_of(reload, FILE.replace("HOST_API_KEY", "OTHER_KEY").replace(OWN, THIEF)) == [MOVED]


CLOUD = """
headers = { X-Gateway = { env = "GATEWAY_KEY" } }
[providers.host.credentials]
source = "client_credentials"
token_url = "https://login.test/token"
client_id = "legato"
client_secret_env = "CLIENT_SECRET"
"""


@pytest.mark.parametrize(
    "changed",
    [
        ("http://host.test/v1", THIEF),
        ("https://login.test/token", "https://thief.test/token"),
        ("https://login.test/token", "http://login.test/token"),
    ],
)
def test_secrets_of_credentials_and_headers_stay_with_their_servers(
    reload: Reload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[str, str]
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "canary-of-a-gateway")
    monkeypatch.setenv("CLIENT_SECRET", "canary-of-a-client")
    text = FILE.replace('api_key_env = "HOST_API_KEY"', CLOUD)
    (tmp_path / "routes.toml").write_text(text)
    assert mistakes_of(reload, text) == []
    assert mistakes_of(reload, text.replace(*changed)) == [MOVED]


def test_known_key_brings_no_others_along(reload: Reload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_KEY_PEPPERS", "1:pepper")
    known = 'api_key_env = "HOST_API_KEY"'
    text = FILE.replace(known, f'{known}\nheaders = {{ X = {{ env = "LEGATO_KEY_PEPPERS" }} }}')
    [mistake] = mistakes_of(reload, text)
    assert "LEGATO_KEY_PEPPERS, that is no provider's key" in mistake
    text = FILE.replace(known, f'{known}\nheaders = {{ X = {{ file = "/etc/hostname" }} }}')
    [mistake] = mistakes_of(reload, text)
    assert "/etc/hostname, outside the folders" in mistake

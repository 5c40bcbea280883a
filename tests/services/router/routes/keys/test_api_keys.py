"""API keys that the routes file names: in a file, or in a variable."""

from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.router.routes.routes import load_routes
from tests.services.router.routes.test_routes import GOOD, mistakes_of

KEY_FILE = GOOD.replace('api_key_env = "HOST_KEY"', 'api_key_file = "keys/host"')


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    (tmp_path / "routes.toml").write_text(KEY_FILE)
    return tmp_path / "keys/host"


def test_key_is_read_from_a_file_beside_the_routes_and_is_not_in_their_version(key_file: Path) -> None:
    versions = set()
    for api_key in ("secret-1\n", "secret-2"):
        key_file.write_text(api_key)
        routes = load_routes(key_file.parents[1] / "routes.toml", {})
        assert (routes.providers["host"].api_key, routes.providers["host"].api_key_file) == (api_key.strip(), key_file)
        assert "secret" not in repr(routes)
        versions.add(routes.version)
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        (None, "cannot read {path}: No such file or directory"),
        (b" \n", "{path} is empty"),
        (b"secret\r\nHost: elsewhere", "{path} is not one line of ASCII characters"),
        (b"secret\xff", "{path} is not text"),
    ],
)
def test_file_without_a_key_is_a_mistake_that_quotes_nothing(
    key_file: Path, content: bytes | None, mistake: str
) -> None:
    if content is not None:
        key_file.write_bytes(content)
    routes = key_file.parents[1] / "routes.toml"
    with pytest.raises(SettingsError) as error:
        load_routes(routes, {})
    assert str(error.value) == f"{routes}: providers.host.api_key_file: {mistake.format(path=key_file)}"
    # On a machine that has no keys, the rest of the file is checked.
    assert load_routes(routes, {}, has_keys=False).providers["host"].api_key == ""


def test_file_beside_a_variable_is_a_mistake(tmp_path: Path) -> None:
    both = GOOD.replace('api_key_env = "HOST_KEY"', 'api_key_env = "HOST_KEY"\napi_key_file = "/dev/null"')
    mistakes = mistakes_of(tmp_path / "routes.toml", both)
    assert "providers.host.api_key_file: is given beside api_key_env: give only one of them" in mistakes

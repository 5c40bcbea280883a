"""Headers and parameters that a provider's requests have beside ours."""

from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.router.providers.base import ProviderRoute
from services.router.routes.diff import find_changes
from services.router.routes.routes import Routes, load_routes
from tests.services.router.routes.test_routes import GOOD

ENVIRON = {"HOST_KEY": "secret", "GATEWAY_KEY": "canary-of-a-gateway"}


def load(folder: Path, lines: str, *, has_keys: bool = True) -> Routes:
    path = folder / "routes.toml"
    path.write_text(GOOD.replace("zero_retention = true\n", f"zero_retention = true\n{lines}\n", 1))
    return load_routes(path, ENVIRON, has_keys=has_keys)


def read(folder: Path, lines: str) -> ProviderRoute:
    return load(folder, lines).providers["host"]


def mistake_of(folder: Path, lines: str) -> str:
    with pytest.raises(SettingsError) as refusal:
        read(folder, lines)
    return str(refusal.value).partition("routes.toml: ")[2]


def test_headers_and_parameters_come_from_texts_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary-in-a-file\n")
    headers = '{ HTTP-Referer = "https://us.test", X-Gateway = { env = "GATEWAY_KEY" }, X-File = { file = "key" } }'
    route = read(tmp_path, f'headers = {headers}\nquery = {{ api-version = "2025-01-01-preview", "a b" = "c&d" }}')
    assert route.headers == (
        ("http-referer", "https://us.test"),
        ("x-gateway", "canary-of-a-gateway"),
        ("x-file", "canary-in-a-file"),
    )
    assert route.query == (("api-version", "2025-01-01-preview"), ("a b", "c&d"))
    assert "canary" not in repr(route)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "api-key", "X-API-Key", "x-goog-api-key", "Host", "Content-Length", "Content-Type",
        "Transfer-Encoding", "Connection", "anthropic-version", "traceparent", "X-Amz-Date", "User-Agent", "Cookie",
    ],
)  # fmt: skip
def test_headers_of_ours_may_not_be_set(tmp_path: Path, name: str) -> None:
    assert mistake_of(tmp_path, f'headers = {{ {name} = "x" }}').startswith(f"providers.host.headers.{name}: is")


@pytest.mark.parametrize(
    ("lines", "mistake"),
    [
        ('headers = { "a b" = "x" }', "headers.a b: is no name of a header"),
        ('headers = { "a\\r\\nHost" = "x" }', "headers.a\r\nHost: is no name of a header"),
        ('headers = { A = "x", a = "y" }', "headers.a: is given twice, in capital and small letters"),
        ('headers = { A = "" }', "headers.A: must be one line"),
        ('headers = { A = "canary\\r\\nHost: elsewhere" }', "headers.A: must be one line"),
        ('headers = { A = " x" }', "headers.A: must be one line"),
        ('headers = { A = "é" }', "headers.A: must be one line"),
        ("headers = { A = 7 }", "headers.A: must be a text, or"),
        ("headers = { A = {} }", "headers.A: must be a text, or"),
        ('headers = { A = { file = "x", env = "Y" } }', "headers.A: must be a text, or"),
        ('headers = { A = { env = "NO_KEY" } }', "headers.A: the variable NO_KEY is not set"),
        ('headers = { A = { file = "none" } }', "headers.A: cannot read"),
        ('headers = "A"', "headers: must be a table"),
        ('query = { alt = "json" }', "query.alt: is a parameter that Legato sets itself"),
        ('query = { "" = "json" }', "query: is no name of a parameter"),
    ],
)
def test_mistake_is_told_with_its_key_and_without_the_value(tmp_path: Path, lines: str, mistake: str) -> None:
    told = mistake_of(tmp_path, lines)
    assert told.startswith(f"providers.host.{mistake}")
    assert "canary" not in told


def test_parameter_of_the_address_is_not_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    text = GOOD.replace("https://host.test/v1", "https://host.test/v1?api-version=1")
    path.write_text(text.replace("zero_retention = true", 'zero_retention = true\nquery = { api-version = "2" }', 1))
    with pytest.raises(SettingsError, match="api-version: is in base_url as well"):
        load_routes(path, ENVIRON)


def test_secrets_are_not_looked_for_on_machines_that_have_none(tmp_path: Path) -> None:
    load(tmp_path, 'headers = { A = { file = "none" }, B = { env = "NO_KEY" } }', has_keys=False)


def test_change_of_a_header_is_told_without_its_value(tmp_path: Path) -> None:
    before = load(tmp_path, 'headers = { A = "canary-one" }\nquery = { b = "canary-two" }')
    after = load(tmp_path, 'headers = { A = "canary-three" }\nquery = { b = "canary-four" }')
    changes = find_changes(before, after)
    assert changes == ["+ provider host: another headers", "+ provider host: another query"]

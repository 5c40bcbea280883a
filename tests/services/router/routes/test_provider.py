"""Providers at clouds, as the routes file describes them."""

from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.router.providers.base import ProviderRoute
from services.router.routes.routes import load_routes
from tests.services.router.routes.test_routes import GOOD

PROMISE = 'zero_retention = true\nevidence = "contract 4711"\nuntil = 2999-12-31\n'
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
GLOBAL = "https://aiplatform.googleapis.com/v1/projects/p/locations/global"
BEDROCK = "https://bedrock-runtime.ca-central-1.amazonaws.com"
PRIVATE = "https://vpce-1-2.bedrock-runtime.ca-west-1.vpce.amazonaws.com"
MANTLE = "https://bedrock-mantle.ca-central-1.api.aws/anthropic"
OWN = "https://api.anthropic.com"


def read(folder: Path, kind: str, base_url: str, lines: str = "") -> ProviderRoute:
    path = folder / "routes.toml"
    text = GOOD.replace('kind = "openai"', f'kind = "{kind}"').replace("https://host.test/v1", base_url)
    path.write_text(text.replace("zero_retention = true\n", f"{PROMISE}{lines}\n", 1))
    return load_routes(path, {"HOST_KEY": "secret"}).providers["host"]


@pytest.mark.parametrize(
    ("kind", "base_url", "version", "platform"),
    [
        ("anthropic", VERTEX, "vertex-2023-10-16", "vertex"),
        ("anthropic", GLOBAL, "2026-10-21", "vertex"),
        ("anthropic", "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu", "2026-10-21", "vertex"),
        ("anthropic", BEDROCK, "bedrock-2023-05-31", "bedrock"),
        ("anthropic", PRIVATE, "2026-10-21", "bedrock"),
        ("anthropic", MANTLE, "2023-06-01", ""),
        ("anthropic", OWN, "2026-10-21", ""),
        ("gemini", VERTEX, "", "vertex"),
        ("gemini", "https://generativelanguage.googleapis.com", "v1", ""),
    ],
)
def test_platform_follows_from_the_host(tmp_path: Path, kind: str, base_url: str, version: str, platform: str) -> None:
    route = read(tmp_path, kind, base_url, f'version = "{version}"' if version else "")
    assert (route.platform, route.version) == (platform, version)
    # The clouds' keys are Bearer tokens.
    assert route.key_header == ("authorization" if platform else "")


def test_platform_and_header_of_a_key_may_be_stated(tmp_path: Path) -> None:
    lines = 'platform = "bedrock"\nversion = "2026-10-21"\napi_key_header = "x-api-key"'
    route = read(tmp_path, "anthropic", "https://gateway.test/bedrock", lines)
    assert (route.platform, route.key_header) == ("bedrock", "x-api-key")


@pytest.mark.parametrize(
    ("kind", "base_url", "lines", "mistake"),
    [
        ("anthropic", BEDROCK, 'version = "2023-06-01"', 'version: is "2023-06-01", but must be one of 2026-10-21'),
        ("anthropic", OWN, 'version = "bedrock-2023-05-31"', "version: is"),
        ("anthropic", BEDROCK, "", "version: is missing"),
        ("anthropic", OWN, 'version = "2026-10-21"\nplatform = "azure"', 'platform: is "azure", but must be one of'),
        ("gemini", OWN, 'version = "v1"\nplatform = "bedrock"', 'platform: is "bedrock", but must be one of vertex'),
        ("gemini", VERTEX, 'version = "v1"', "version: is not a known key"),
        ("openai", VERTEX, 'platform = "vertex"', "platform: is not a known key"),
        ("openai", OWN, 'api_key_header = "cookie"', 'api_key_header: is "cookie", but must be one of authorization'),
    ],
)
def test_what_a_platform_does_not_have_is_a_mistake(
    tmp_path: Path, kind: str, base_url: str, lines: str, mistake: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        read(tmp_path, kind, base_url, lines)
    assert f"providers.host.{mistake}" in str(refusal.value)

"""Regions, as names of hosts and certificates tell them."""

from pathlib import Path

import pytest

from services.router.routes.region import find_other_region, region_of
from services.router.routes.routes import load_routes
from tests.services.router.routes.test_routes import GOOD, mistakes_of

PROMISE = 'zero_retention = true\nevidence = "contract 4711"\nuntil = 2999-12-31\nregion = "ca-central-1"'
BEDROCK = "bedrock-runtime.{}.amazonaws.com"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.ca-central-1.amazonaws.com", "ca-central-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("vpce-1-2.bedrock-runtime.ca-west-1.vpce.amazonaws.com", "ca-west-1"),
        ("bedrock-mantle.us-east-1.api.aws", "us-east-1"),
        ("canadaeast.api.cognitive.microsoft.com", "canadaeast"),
        ("llama.eastus2.models.ai.azure.com", "eastus2"),
        ("ours.canadacentral.inference.ml.azure.com", "canadacentral"),
        ("northamerica-northeast1-aiplatform.googleapis.com", "northamerica-northeast1"),
        ("aiplatform.eu.rep.googleapis.com", "eu"),
        ("EU.api.openai.com", "eu"),
        ("api.openai.com", None),
        ("ours.openai.azure.com", None),
        ("aiplatform.googleapis.com", None),
        ("bedrock-runtime.ca-central-1.amazonaws.com.vendor.com", None),
        ("ca-central-1.vendor.com", None),
        ("", None),
    ],
)
def test_host_tells_its_region(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_stated_region_may_not_contradict_the_host(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    stated = GOOD.replace("zero_retention = true", PROMISE)
    for host in (BEDROCK.format("ca-central-1"), "gateway.vendor.com"):
        path.write_text(stated.replace("host.test", host))
        assert load_routes(path, {"HOST_KEY": "secret"}).providers["host"].region == "ca-central-1"
    assert mistakes_of(path, stated.replace("host.test", BEDROCK.format("us-east-1"))) == [
        'providers.host.region: is "ca-central-1", but bedrock-runtime.us-east-1.amazonaws.com is in us-east-1'
    ]


def test_stated_region_may_not_contradict_the_location_in_the_path(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    stated = GOOD.replace("zero_retention = true", PROMISE.replace("ca-central-1", "northamerica-northeast1"))
    address = "aiplatform.googleapis.com/v1/projects/project/locations/{}/endpoints/openapi"
    path.write_text(stated.replace("host.test/v1", address.format("northamerica-northeast1")))
    assert load_routes(path, {"HOST_KEY": "secret"}).providers["host"].region == "northamerica-northeast1"
    for location in ("global", "us-east5"):
        assert mistakes_of(path, stated.replace("host.test/v1", address.format(location))) == [
            f'providers.host.region: is "northamerica-northeast1", but aiplatform.googleapis.com is in {location}'
        ]


@pytest.mark.parametrize(
    ("region", "names", "other"),
    [
        ("canadaeast", ["*.openai.azure.com", "eastus.api.cognitive.microsoft.com"], "eastus"),
        ("CanadaEast", ["eastus.api.cognitive.microsoft.com", "canadaeast.api.cognitive.microsoft.com"], None),
        ("ca-central-1", ["*.us-east-1.amazonaws.com"], "us-east-1"),
        ("canadaeast", ["*.openai.azure.com"], None),
        ("canadaeast", [], None),
        ("", ["eastus.api.cognitive.microsoft.com"], None),
    ],
)
def test_certificate_tells_another_region(region: str, names: list[str], other: str | None) -> None:
    assert find_other_region(region, names) == other

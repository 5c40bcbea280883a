import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cli.commands.service.migrate import MigrateSettings
from edge.settings import EdgeSettings
from services.auth.settings import AuthSettings
from services.chassis.settings import SettingsError
from services.metering.settings import MeteringSettings
from services.router.settings import RouterSettings
from services.rules.residency import DataStore, keep_in_canada

ELSEWHERE = "postgresql://legato:hunter2@db.example.com/legato"
WAIT_TIMEOUT_S = 60


@pytest.mark.parametrize("region", ["ca-central-1", "canadacentral", "northamerica-northeast2", "local"])
def test_a_store_in_canada_is_opened(region: str) -> None:
    keep_in_canada([DataStore("DATABASE", region, ELSEWHERE)])


def test_every_store_abroad_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        keep_in_canada([DataStore("DATABASE", "us-east-1", ELSEWHERE), DataStore("DATA", "eu-west-3")])

    first, second = str(refused.value).splitlines()
    assert first.startswith("LEGATO_DATABASE_REGION: ")
    assert "us-east-1" in first
    assert second.startswith("LEGATO_DATA_REGION: ")
    assert "hunter2" not in first


@pytest.mark.parametrize(
    "url", [ELSEWHERE, "postgresql:///legato?host=db.example.com", "postgresql://a,b/legato", "redis://valkey:6379/0"]
)
def test_a_server_without_a_region_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_DATABASE_REGION is not set"):
        keep_in_canada([DataStore("DATABASE", "", url)])


@pytest.mark.parametrize(
    "url", ["", "postgresql://localhost/legato", "postgresql:///legato?host=/run/postgresql", "unix:///run/valkey.sock"]
)
def test_what_is_on_this_machine_needs_no_region(url: str) -> None:
    keep_in_canada([DataStore("DATABASE", "", url)])


@pytest.mark.parametrize("kind", [AuthSettings, EdgeSettings, MeteringSettings, MigrateSettings, RouterSettings])
def test_every_address_of_a_store_comes_with_its_region(kind: type[msgspec.Struct]) -> None:
    names = {field.name for field in msgspec.structs.fields(kind)}

    for store in ("database", "valkey"):
        assert (f"{store}_url" in names) == (f"{store}_region" in names)


@pytest.mark.parametrize(
    ("module", "stores"),
    [
        ("edge", ["DATA"]),
        ("services.auth", ["DATA", "DATABASE"]),
        ("services.metering", ["DATA", "DATABASE", "VALKEY"]),
    ],
)
def test_no_process_starts_on_a_store_abroad(module: str, stores: list[str], tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    environ |= {"LEGATO_DATA": str(tmp_path / "data"), "LEGATO_KEY_PEPPERS": "1:" + "5e" * 32}
    environ |= {f"LEGATO_{store}_REGION": "us-east-1" for store in ("DATA", "DATABASE", "VALKEY")}
    ended = subprocess.run(
        [sys.executable, "-m", module], env=environ, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False
    )

    assert ended.returncode == 2
    assert [line.partition(":")[0] for line in ended.stderr.splitlines()] == [
        f"LEGATO_{store}_REGION" for store in stores
    ]
    assert not (tmp_path / "data").exists()

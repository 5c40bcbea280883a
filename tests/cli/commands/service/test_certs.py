import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from cli.main import legato


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(legato, ["certs", *words, "--folder", str(folder)])


def shown(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["file"]: row for row in json.loads(run(folder, "show", "--json").stdout)}


def test_certificates_name_who_they_are_for_and_how_long_they_last(tmp_path: Path) -> None:
    assert run(tmp_path, "init").exit_code == 0
    names = ("edge", "router", "caller/reports")
    issued = run(tmp_path, "issue", *names, "--host", "router.example", "--days", "30")
    assert issued.exit_code == 0
    rows = shown(tmp_path)
    assert rows["router.pem"]["identity"] == "spiffe://legato/router"
    assert rows["router.pem"]["hosts"] == ["router", "router.example"]
    assert rows["edge.pem"]["hosts"] == ["edge", "router.example"]
    assert rows["caller-reports.pem"]["identity"] == "spiffe://legato/caller/reports"
    assert rows["caller-reports.pem"]["days_left"] == 29
    assert rows["ca.pem"]["identity"] == ""
    assert datetime.fromisoformat(rows["ca.pem"]["expires"]) > datetime.now(UTC) + timedelta(days=3600)


def test_edge_is_a_client_of_the_services_and_the_server_of_programs(tmp_path: Path) -> None:
    run(tmp_path, "init")
    run(tmp_path, "issue", "edge", "--host", "edge.example")
    assert shown(tmp_path)["edge.pem"]["hosts"] == ["edge", "edge.example"]
    certificate = x509.load_pem_x509_certificate((tmp_path / "edge.pem").read_bytes())
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    run(folder, "init")
    run(folder, "issue", "edge")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob("*.key"))}
    assert modes == {"certs": 0o700, "ca.key": 0o600, "edge.key": 0o600}


def test_authority_that_is_there_is_kept(tmp_path: Path) -> None:
    run(tmp_path, "init")
    before = (tmp_path / "ca.key").read_bytes()
    again = run(tmp_path, "init", "--json")
    assert json.loads(again.stdout)["made"] is False
    assert (tmp_path / "ca.key").read_bytes() == before


def test_authority_that_is_replaced_is_believed_until_it_is_taken_out(tmp_path: Path) -> None:
    run(tmp_path, "init")
    before = (tmp_path / "ca.pem").read_bytes()
    run(tmp_path, "init", "--again")
    believed = (tmp_path / "ca.pem").read_bytes()
    assert believed.endswith(before)
    assert len(x509.load_pem_x509_certificates(believed)) == 2


def test_nothing_is_issued_without_an_authority(tmp_path: Path) -> None:
    result = run(tmp_path, "issue", "edge")
    assert result.exit_code == 1
    assert "legato certs init" in result.stderr


@pytest.mark.parametrize("name", ["unknown", "caller", "caller/", "caller/../ca", "Edge", "ca"])
def test_names_without_a_role_are_refused(tmp_path: Path, name: str) -> None:
    run(tmp_path, "init")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert run(tmp_path, "issue", name).exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before

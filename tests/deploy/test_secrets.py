"""Secrets on the disk of the person who makes them."""

import base64
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.authority import read_certificate
from deploy.kubernetes_secrets import secrets_in
from deploy.make_secrets import make_secrets


@pytest.fixture
def everything_open() -> Iterator[None]:
    """Clears the mask, as a user may have done."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("everything_open")
def test_the_folder_of_kubernetes_secrets_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "legato-secrets"

    secrets_in(folder)

    assert {mode_of(path) for path in (folder, *folder.iterdir())} == {0o700}
    # Certificates are no secret.
    files = [path for path in folder.glob("*/*") if path.suffix != ".pem"]
    assert [path for path in files if mode_of(path) & 0o077] == []


@pytest.mark.usefixtures("everything_open")
def test_a_folder_that_was_open_to_all_is_closed(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    (tmp_path / "postgres").chmod(0o755)
    (tmp_path / "postgres" / "password").chmod(0o444)

    secrets_in(tmp_path)

    assert mode_of(tmp_path / "postgres") == 0o700


@pytest.mark.usefixtures("everything_open")
def test_no_secret_is_open_before_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made as it is to stay: a program that watches the folder finds no moment to read it."""
    monkeypatch.setattr(Path, "chmod", lambda *arguments: None)

    make_secrets(tmp_path / "secrets")

    files = [path for path in tmp_path.glob("secrets/*/*") if path.suffix != ".pem"]
    assert files
    assert [path for path in files if mode_of(path) & 0o077] == []


def test_program_has_an_identity_of_its_own_in_whatever_namespace_it_runs(tmp_path: Path) -> None:
    [secret] = secrets_in(tmp_path / "made", ["tls-caller-reports"])
    assert secret["metadata"] == {"name": "tls-caller-reports"}
    assert secret["data"].keys() == {"ca.crt", "tls.crt", "tls.key"}
    issued = tmp_path / "tls.pem"
    issued.write_bytes(base64.b64decode(secret["data"]["tls.crt"]))
    assert read_certificate(issued)[0] == "spiffe://legato/caller/reports"
    [edge] = secrets_in(tmp_path / "made", ["tls-edge"])
    assert edge["data"]["ca.crt"] == secret["data"]["ca.crt"]

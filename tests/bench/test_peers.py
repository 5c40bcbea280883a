from pathlib import Path

import pytest

from bench.peers import installation
from bench.peers.gateways import TENSORZERO_REQUIREMENT
from bench.peers.litellm import WITH_DATABASE
from bench.targets import TargetMissing


def test_peer_that_cannot_be_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "FOLDER", tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(TargetMissing, match=r"no-such-gateway==1\.0 could not be installed"):
        installation.install_python("no-such-gateway==1.0")


def test_versions_of_peers_are_pinned() -> None:
    assert all("==" in requirement for requirement in (*WITH_DATABASE, TENSORZERO_REQUIREMENT))

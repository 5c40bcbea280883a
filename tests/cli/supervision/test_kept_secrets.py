import stat
from pathlib import Path

import pytest

from cli.supervision.data_folder import DataFolderUnusable
from cli.supervision.kept_secrets import secrets_for
from cli.supervision.settings import UpSettings

# The variables, and the files in which the secrets are kept.
KEPT = {
    "LEGATO_KEY_PEPPERS": "key-peppers",
    "LEGATO_GROUNDING_KEY": "grounding-key",
    "LEGATO_REASONING_KEY": "reasoning-key",
    "LEGATO_CREDENTIAL_ENCRYPTION_KEY": "credential-key",
}


def test_secrets_are_made_once_private_and_differ(tmp_path: Path) -> None:
    made = secrets_for(UpSettings(memory=True), tmp_path)
    assert secrets_for(UpSettings(attachments=True), tmp_path) == made
    assert len(set(made.values())) == len(made) == 6
    for variable, name in KEPT.items():
        version, _, secret = made[variable].partition(":")
        assert (version, len(bytes.fromhex(secret))) == ("1", 32)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_secrets_of_two_folders_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, other = (secrets_for(UpSettings(memory=True), tmp_path / name) for name in ("a", "b"))
    assert set(one.values()).isdisjoint(other.values())


def test_secrets_that_are_set_are_not_kept(tmp_path: Path) -> None:
    settings = UpSettings(
        key_peppers="1:aa",
        grounding_key="1:bb",
        reasoning_key="1:ab",
        credential_encryption_key="1:cc",
        access_token_signing_key="dd" * 32,
    )
    given = secrets_for(settings, tmp_path)
    assert [given[variable] for variable in KEPT] == ["1:aa", "1:bb", "1:ab", "1:cc"]
    assert given["LEGATO_ACCESS_TOKEN_SIGNING_KEY"] == "dd" * 32
    assert list(tmp_path.iterdir()) == []


def test_grounding_key_is_made_only_where_something_is_to_be_kept(tmp_path: Path) -> None:
    assert secrets_for(UpSettings(), tmp_path)["LEGATO_GROUNDING_KEY"] == ""
    assert not (tmp_path / "grounding-key").exists()


def test_public_keys_of_before_stay_valid_beside_the_one_that_is_set(tmp_path: Path) -> None:
    settings = UpSettings(access_token_signing_key="dd" * 32, access_token_public_keys="ee" * 32)
    assert secrets_for(settings, tmp_path)["LEGATO_ACCESS_TOKEN_PUBLIC_KEYS"].split(",")[1:] == ["ee" * 32]


def test_folder_that_cannot_be_written_is_one_clear_line() -> None:
    with pytest.raises(DataFolderUnusable, match="choose another folder with --data"):
        secrets_for(UpSettings(), Path("/proc/legato"))

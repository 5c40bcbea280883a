from pathlib import Path

import pytest

from cli.backups.manifest import BackupUnusable
from cli.backups.secret_fingerprints import compare_secrets, fingerprints, given_secrets
from cli.backups.settings import BackupSettings

ONE, TWO = "ab" * 32, "cd" * 32


def test_secrets_are_those_that_are_set_or_else_those_of_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "key-peppers").write_text(f"1:{ONE}\n")
    (tmp_path / "grounding-key").write_text(f"1:{ONE}\n")
    given = given_secrets(BackupSettings(key_peppers=f"2:{TWO}"), tmp_path)
    assert given == {"LEGATO_KEY_PEPPERS": f"2:{TWO}", "LEGATO_GROUNDING_KEY": f"1:{ONE}"}
    named = fingerprints(given)
    assert named["LEGATO_KEY_PEPPERS"].startswith("2:")
    assert ONE not in str(named)


def test_a_secret_that_is_not_given_is_told_and_another_one_is_refused() -> None:
    needed = fingerprints({"LEGATO_KEY_PEPPERS": f"1:{ONE},2:{TWO}"})
    assert compare_secrets(needed, needed) == []
    [missing] = compare_secrets(needed, fingerprints({"LEGATO_KEY_PEPPERS": f"2:{TWO},3:{ONE}"}))
    assert missing.startswith("LEGATO_KEY_PEPPERS (or key-peppers in ")
    assert "with version 1, fingerprint " in missing
    assert len(compare_secrets(needed, {})) == 2
    with pytest.raises(BackupUnusable, match="version 2 of LEGATO_KEY_PEPPERS"):
        compare_secrets(needed, fingerprints({"LEGATO_KEY_PEPPERS": f"1:{ONE},2:{ONE}"}))

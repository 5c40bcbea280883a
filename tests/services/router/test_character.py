"""The character layer's file."""

from pathlib import Path

import msgspec
import pytest

from services.chassis.settings import SettingsError
from services.router.character import load_character


def test_character_is_a_system_message(tmp_path: Path) -> None:
    (tmp_path / "character.md").write_text('Be "kind".\n')
    character = load_character(tmp_path / "character.md")
    assert msgspec.json.decode(character.message_json) == {"role": "system", "content": 'Be "kind".'}


def test_file_that_is_missing_or_empty_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text(" \n")
    for name in ("empty.md", "missing.md"):
        with pytest.raises(SettingsError, match="LEGATO_CHARACTER"):
            load_character(tmp_path / name)

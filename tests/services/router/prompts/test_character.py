"""The character layer's file."""

from pathlib import Path

import msgspec
import pytest

from services.chassis.settings import SettingsError
from services.router.prompts.character import BUNDLED, load_character
from services.router.schema.messages import encode


def test_character_is_a_system_message(tmp_path: Path) -> None:
    (tmp_path / "character.md").write_text('Be "kind".\n')
    character = load_character("character.md", tmp_path)
    assert msgspec.json.decode(encode(character.message)) == {"role": "system", "content": 'Be "kind".'}


def test_every_bundled_text_is_found_by_its_name_which_is_its_version() -> None:
    names = [path.stem for path in BUNDLED.iterdir()]
    assert names
    assert [load_character(name).version for name in names] == names


def test_text_for_the_small_model_is_the_shortest() -> None:
    assert len(load_character("legato-small-1").text) < len(load_character().text)


def test_file_that_is_missing_or_empty_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text(" \n")
    for name in ("empty.md", "missing.md", "no-such-character"):
        with pytest.raises(SettingsError, match=name):
            load_character(name, tmp_path)

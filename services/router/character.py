"""The character layer: what every conversation begins with, whatever the client sends."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.chassis.settings import SettingsError

DEFAULT_PATH = Path(__file__).with_name("character.md")


@dataclass(frozen=True, slots=True)
class Character:
    text: str
    # The same as a message, ready to be put before the client's.
    message_json: bytes


def load_character(path: Path = DEFAULT_PATH) -> Character:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"LEGATO_CHARACTER: cannot read {path}: {type(error).__name__}") from None
    if not text:
        raise SettingsError(f"LEGATO_CHARACTER: {path} is empty")
    return Character(text, msgspec.json.encode({"role": "system", "content": text}))

"""The character layer: what every conversation begins with, whatever the client sends."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.chassis.settings import SettingsError

BUNDLED = Path(__file__).with_name("characters")
DEFAULT = "legato-1"


@dataclass(frozen=True, slots=True)
class Character:
    # The name of its file. A text that is in use is not edited, but followed by another version under another name, so
    # that the log tells which one a chat was given.
    version: str
    text: str
    # The same as a message, ready to be put before the client's.
    message_json: bytes


def load_character(named: str = DEFAULT, folder: Path = BUNDLED) -> Character:
    """One that comes with Legato, by its name, or a file ending with `.md`, whose path is relative to `folder`."""
    path = folder / named if named.endswith(".md") else BUNDLED / f"{named}.md"
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {type(error).__name__}") from None
    if not text:
        raise SettingsError(f"{path} is empty")
    return Character(path.stem, text, msgspec.json.encode({"role": "system", "content": text}))

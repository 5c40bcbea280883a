"""The character layer: the system prompt that every conversation begins with, whatever the client sends."""

from dataclasses import dataclass
from pathlib import Path

from services.chassis.settings import SettingsError
from services.router.schema.messages import Message, encode_string

BUNDLED = Path(__file__).with_name("characters")
DEFAULT = "legato-1"


@dataclass(frozen=True, slots=True)
class Character:
    # The name of its file. A character in use is never edited but replaced by a new version under a new name, so that
    # the log identifies the text that a chat was given.
    version: str
    text: str
    # The text as a system message.
    message: Message


def load_character(named: str = DEFAULT, folder: Path = BUNDLED) -> Character:
    """Loads a bundled character by name, or a file ending with `.md`, whose path is relative to `folder`."""
    path = folder / named if named.endswith(".md") else BUNDLED / f"{named}.md"
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {type(error).__name__}") from None
    if not text:
        raise SettingsError(f"{path} is empty")
    return Character(path.stem, text, Message(role="system", content=encode_string(text)))

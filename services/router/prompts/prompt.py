"""Composes the prompt: the character first, then the client's messages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.settings import SettingsError
from services.chassis.small_file import read_small_file
from services.router.prompts import tokens
from services.router.schema.messages import Message, Messages, encode_string, read_messages, unreadable
from services.router.schema.parameters import NO_PARAMETERS, Parameters
from services.router.schema.tools import NO_TOOLS, Tools

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
        text = read_small_file(path).strip()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not text") from None
    if not text:
        raise SettingsError(f"{path} is empty")
    return Character(path.stem, text, Message(role="system", content=encode_string(text)))


# Approximate tokens of a chat template around a message and before the answer.
TOKENS_PER_MESSAGE = 4
TOKENS_BEFORE_ANSWER = 3

SetAside = Callable[[Messages], Awaitable[Messages]]

# A longer parameter is not a number.
LONGEST_NUMBER_BYTES = 32


@dataclass(slots=True, repr=False)
class Prompt:
    """The input of a model. Messages, tools and parameters are parsed once, however many models are tried."""

    messages: Messages
    tokens: int
    # The client's own.
    tools: Tools = NO_TOOLS
    parameters: Parameters = NO_PARAMETERS
    # Our own functions, offered if the client has none and the model supports tools.
    offered_tools: Tools | None = None
    # The digest of the conversation, where the class uses it.
    conversation: bytes = b""
    # What chooses the prompt cache before the conversation does: the digest of the client's own `prompt_cache_key`, or,
    # in a first turn, of the instructions.
    cache_key: bytes = b""
    # The beginning of the answer, which the model is to continue.
    answer_prefix: str = ""

    def identify(self, conversation: bytes, cache_key: bytes) -> None:
        """Records what its turns have in common; called before grounding adds to the client's messages."""
        self.conversation, self.cache_key = conversation, cache_key


async def compose_prompt(
    messages_json: bytes,
    tools_json: bytes,
    character: Character,
    *,
    tool_choice_json: bytes = b"",
    parameters_json: bytes = b"",
    set_aside: SetAside | None = None,
) -> Prompt:
    """Composes the prompt and counts everything that is sent to the model, in any field. `set_aside` takes out of the
    messages what only some models are sent."""
    tools, parameters = Tools.read(tools_json, tool_choice_json), Parameters(parameters_json)
    values_json = (tools.json, tool_choice_json, *_texts_among(parameters))
    messages = await read_messages(messages_json, character.message)
    if set_aside is not None:
        messages = await set_aside(messages)
    if len(messages.parsed) == 1:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("messages_none"), param="messages")
    try:
        if messages.are_plain and messages.size_bytes <= tokens.SLICE_CHARACTERS and not any(values_json):
            prompt_tokens = tokens.count_plain(messages.parsed[1:])
        else:
            prompt_tokens = await tokens.count_request(islice(messages.parsed, 1, None), values_json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise unreadable() from None
    prompt_tokens += tokens.count_once(character.text)
    prompt_tokens += TOKENS_PER_MESSAGE * len(messages.parsed) + TOKENS_BEFORE_ANSWER
    return Prompt(messages, prompt_tokens, tools, parameters)


def _texts_among(parameters: Parameters) -> list[bytes]:
    """Returns the parameters that a model may be shown: formats, stops, and anything longer than a number."""
    values = map(bytes, parameters.fields.values())
    return [given for given in values if given[0] in b'"[{' or len(given) > LONGEST_NUMBER_BYTES]

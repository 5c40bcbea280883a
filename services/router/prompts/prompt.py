"""Composes the prompt: the character first, then the client's messages."""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError
from services.router.prompts import tokens
from services.router.prompts.tokens import text_slices
from services.router.providers.base import Figures
from services.router.schema.messages import (
    ABSENT,
    NULL,
    Message,
    Messages,
    Part,
    encode_string,
    read_messages,
    unreadable,
)
from services.router.schema.tools import NO_PARAMETERS, NO_TOOLS, Parameters, Tools

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


# Approximate tokens of a chat template around a message and before the answer.
TOKENS_PER_MESSAGE = 4
TOKENS_BEFORE_ANSWER = 3

# A longer parameter is not a number.
LONGEST_NUMBER_BYTES = 32

_QUOTE = ord('"')
_NO_NAME = ("",)


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


async def compose_prompt(
    messages_json: bytes,
    tools_json: bytes,
    character: Character,
    *,
    tool_choice_json: bytes = b"",
    parameters_json: bytes = b"",
) -> Prompt:
    """Composes the prompt and counts everything that is sent to the model, in any field."""
    counted = tokens.YieldingCount()
    tools = Tools(tools_json, tool_choice_json)
    parameters = Parameters(parameters_json)
    for given_json in (tools_json, tool_choice_json, *_texts_among(parameters)):
        for piece in tokens.slices_of_json(given_json):
            if counted.add(piece):
                await counted.pause()
    messages = await read_messages(messages_json)
    if not messages.parsed:
        raise LegatoError(Reason.REQUEST_INVALID, "There must be at least one message.", param="messages")
    try:
        await _count(messages.parsed, counted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise unreadable() from None
    prompt_tokens = tokens.count_once(character.text) + counted.tokens
    prompt_tokens += TOKENS_PER_MESSAGE * (1 + len(messages.parsed)) + TOKENS_BEFORE_ANSWER
    return Prompt(messages.insert(0, character.message), prompt_tokens, tools, parameters)


def insert_guidance(prompt: Prompt, text: str) -> Prompt:
    """Inserts a system message after the leading ones, so that the prefix stays unchanged for caches."""
    messages = prompt.messages
    roles = (message.role for message in messages.parsed)
    at = next((index for index, role in enumerate(roles) if role != "system"), len(messages.parsed))
    return replace(
        prompt,
        messages=messages.insert(at, Message(role="system", content=encode_string(text))),
        tokens=prompt.tokens + TOKENS_PER_MESSAGE + tokens.count(text),
    )


def _texts_among(parameters: Parameters) -> list[bytes]:
    """Returns the parameters that a model may be shown: formats, stops, and anything longer than a number."""
    values = map(bytes, parameters.fields.values())
    return [given for given in values if given[0] in b'"[{' or len(given) > LONGEST_NUMBER_BYTES]


async def _count(messages: Iterable[Message], counted: tokens.YieldingCount) -> None:
    for message in messages:
        for piece in _texts(message):
            if counted.add(piece):
                await counted.pause()


def _texts(message: Message) -> Iterator[str]:
    """Yields the texts of a message in slices. Strings are decoded only here, since a prompt may have megabytes."""
    # Yielded even if empty: reading a message has a cost.
    yield from tokens.slices_of(message.name) if message.name else _NO_NAME
    if message.tool_call_id:
        yield from tokens.slices_of(message.tool_call_id)
    content = message.content
    if isinstance(content, list):
        yield from _part_texts(content)
    elif content is not ABSENT and content != NULL:
        yield from text_slices(content)
    for given in (
        message.refusal,
        message.reasoning_content,
        message.reasoning,
        message.prefix,
        message.partial,
    ):
        if given is not ABSENT:
            yield from _any_text(given)
    for call in message.calls:
        yield from tokens.slices_of(call.id or "")
        if call.function is not None:
            yield from tokens.slices_of(call.function.name or "")
            yield from _any_text(call.function.arguments)
        yield from _any_text(call.extra_content)


def _part_texts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        # Yielded even if empty, as for a message.
        yield from _any_text(part.text) if part.text is not ABSENT else ("",)
        yield from _any_text(part.cache_control)


def _any_text(given: msgspec.Raw) -> Iterable[str]:
    """Returns a string's text, or any other value's JSON, in slices."""
    if given is ABSENT:
        return ()
    if memoryview(given)[0] == _QUOTE:
        return text_slices(given)
    return tokens.slices_of_json(given)


# Learns the ratio of a model's token count of prompts to ours.
#
# We count with one tokenizer; a model has its own, and adds templates and tool definitions. Every answer reports the
# model's count of its prompt, so the ratio is known after a few answers.

# In a shorter prompt the template outweighs the tokenizer.
LEAST_PROMPT_TOKENS: Final = 256
# No tokenizer differs from ours by more: such a count is an error, or the prompt was truncated.
SMALLEST_RATIO: Final = 0.2
LARGEST_RATIO: Final = 5.0
# Limits per size bucket. Few samples per account keep a busy one with unusual texts from dominating.
SAMPLES_PER_ACCOUNT: Final = 8
MOST_ACCOUNTS: Final = 16
UPPER_QUANTILE: Final = 0.95


class CountedPrompt(NamedTuple):
    """A prompt with our own token count."""

    tokens: int
    has_tools: bool
    account_id: str


class Ratios(NamedTuple):
    """Quantiles of the model's count of a prompt divided by ours."""

    middle: float
    upper: float
    # Whether they were measured with prompts of about the same size.
    is_same_size: bool = True


class Calibration:
    """The calibration of one model. Prompts are grouped by whether they have tools, and by size within a factor of two:
    a server's fixed additions matter less in a long prompt."""

    def __init__(self) -> None:
        self._by_size: dict[tuple[bool, int], _Samples] = {}

    def note(self, prompt: CountedPrompt, model_tokens: int) -> None:
        """Records the model's own count of a prompt."""
        if prompt.tokens < LEAST_PROMPT_TOKENS:
            return
        ratio = model_tokens / prompt.tokens
        if SMALLEST_RATIO <= ratio <= LARGEST_RATIO:
            self._by_size.setdefault(_size(prompt), _Samples()).add(prompt.account_id, ratio)

    def ratios(self, prompt: CountedPrompt) -> Ratios | None:
        """Returns the ratios for similar prompts, or for the nearest known size; None if there are none."""
        has_tools, bits = _size(prompt)
        known = [size for size in self._by_size if size[0] == has_tools]
        if not known:
            return None
        nearest = min(known, key=lambda size: (abs(size[1] - bits), -size[1]))
        ratios = self._by_size[nearest].ratios()
        return ratios if nearest[1] == bits else ratios._replace(is_same_size=False)


class _Samples:
    def __init__(self) -> None:
        # Ordered by last use, most recent last.
        self._by_account: OrderedDict[str, deque[float]] = OrderedDict()
        self._ratios: Ratios | None = None

    def add(self, account_id: str, ratio: float) -> None:
        self._by_account.setdefault(account_id, deque(maxlen=SAMPLES_PER_ACCOUNT)).append(ratio)
        self._by_account.move_to_end(account_id)
        if len(self._by_account) > MOST_ACCOUNTS:
            self._by_account.popitem(last=False)
        self._ratios = None

    def ratios(self) -> Ratios:
        if self._ratios is None:
            samples = sorted(ratio for ratios in self._by_account.values() for ratio in ratios)
            upper = samples[math.ceil(UPPER_QUANTILE * len(samples)) - 1]
            self._ratios = Ratios(samples[len(samples) // 2], max(samples[len(samples) // 2], upper))
        return self._ratios


def _size(prompt: CountedPrompt) -> tuple[bool, int]:
    return prompt.has_tools, prompt.tokens.bit_length()


# Fits max_tokens to a model's context window.
#
# A server refuses a request whose prompt and max_tokens together exceed its window, by its own count. So the limit is
# fitted by calibration, and once more by the server's own figures if it refuses nevertheless.

# Safety margin, one part of the prompt in this many: before the model's count of prompts of this size is calibrated,
# and after.
MARGIN_PARTS: Final = 16
CALIBRATED_MARGIN_PARTS: Final = 64
# No tokenizer in use counts a prompt as less than this share of our count.
LEAST_RATIO: Final = 0.6
# The part of the window requested if the prompt seems to leave no room: enough for an answer if it is accepted; if it
# is refused, the model reports its figures.
DOUBTFUL_PARTS: Final = 16
# The part of a limit refused without figures that is requested next.
REFUSED_PARTS: Final = 64


class Fit(NamedTuple):
    max_tokens: int
    # The prompt seems to leave no room; only the model can tell.
    is_doubtful: bool = False


def fit_max_tokens(
    asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int, ratios: Ratios | None = None
) -> Fit:
    """Returns the output limit to send to the model, at least 1. `prompt_tokens` is our count; `ratios` calibrate it to
    the model's."""
    if asked is not None and asked < 1:
        raise LegatoError(Reason.REQUEST_INVALID, "max_tokens must be at least 1.", param="max_tokens")
    if LEAST_RATIO * prompt_tokens >= context_tokens:
        raise LegatoError(
            Reason.CONTEXT_EXCEEDED,
            # OpenAI's wording, by which frameworks detect that the conversation must be shortened.
            f"The prompt has {prompt_tokens} tokens, including tool definitions and our system prompt, and"
            f" this model's maximum context length is {context_tokens}: there is no room for an answer."
            " Please shorten the messages.",
            param="messages",
        )
    most_tokens = max_output_tokens if asked is None else min(asked, max_output_tokens)
    likely_tokens = cautious_tokens = prompt_tokens
    margin_parts = MARGIN_PARTS
    if ratios is not None:
        likely_tokens, cautious_tokens = int(ratios.middle * prompt_tokens), int(ratios.upper * prompt_tokens)
        margin_parts = CALIBRATED_MARGIN_PARTS if ratios.is_same_size else MARGIN_PARTS
    room_tokens = context_tokens - likely_tokens
    if room_tokens < 1:
        return Fit(min(most_tokens, max(1, context_tokens // DOUBTFUL_PARTS)), is_doubtful=True)
    cautious_room_tokens = context_tokens - cautious_tokens - cautious_tokens // margin_parts
    # The margin must not reduce an answer to nothing: a refusal costs only one retry.
    return Fit(max(1, min(most_tokens, max(room_tokens // 2, cautious_room_tokens))))


def refit_max_tokens(refused_tokens: int, context_tokens: int, figures: Figures) -> int | None:
    """Returns a smaller limit after a model refused this one for the total length.

    Returns None if the prompt alone is too long. The figures are checked, since a message may quote the client."""
    if refused_tokens <= 1:
        return None
    smaller_tokens = max(1, refused_tokens // REFUSED_PARTS)
    prompt_tokens = model_prompt_tokens(refused_tokens, figures)
    if prompt_tokens is None:
        return smaller_tokens
    room_tokens = (figures.context_tokens or context_tokens) - prompt_tokens
    if room_tokens < 1:
        return None
    # Some servers require the sum to be below the window.
    fitting_tokens = max(1, room_tokens - 1)
    return fitting_tokens if fitting_tokens < refused_tokens else smaller_tokens


def model_prompt_tokens(refused_tokens: int, figures: Figures) -> int | None:
    """Returns the model's own count of the prompt, if it is known."""
    if figures.prompt_tokens is not None:
        return figures.prompt_tokens
    if figures.total_tokens is not None and figures.total_tokens > refused_tokens:
        return figures.total_tokens - refused_tokens
    return None

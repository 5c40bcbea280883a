"""The interface between providers and the rest of the router."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from services.router.prompts.fitting import Figures
from services.router.schema.messages import Messages
from services.router.schema.parameters import Parameters
from services.router.schema.tools import ToolCallFragment, Tools


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    # From the request to the first event of a stream.
    first_byte_s: float = 120.0
    # Between two events of a stream.
    idle_s: float = 60.0
    # For an answer that is not streamed.
    whole_s: float = 600.0
    # For a streamed answer, from the request to its end.
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class ProviderRoute:
    """A provider as described in the routes file."""

    name: str
    kind: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    # The name of the field for the output limit.
    output_field: str = "max_tokens"
    # A JSON object of fields added to every request.
    extra_json: bytes = b"{}"
    # API version, if the provider has several.
    version: str = ""
    # Whether requests to an OpenAI-compatible server ask it not to store them.
    no_store: bool = True
    # Whether it accepts only tool call ids in Mistral's format.
    short_call_ids: bool = False
    # Whether it accepts only strings as content.
    string_content: bool = False


@dataclass(frozen=True, slots=True)
class ProviderEnvironment:
    """The configuration of providers that is not in the routes file."""

    timeouts: Timeouts
    local_model_socket: Path


@dataclass(slots=True, repr=False)
class ProviderCall:
    """One request to a model. The client's JSON has been validated; OpenAI-compatible providers send it unchanged, and
    others translate it from its parsed form."""

    model_name: str
    messages: Messages
    tools: Tools
    parameters: Parameters
    max_tokens: int
    stream: bool
    # Trace context for the provider; empty: none is sent.
    traceparent: str = ""
    # Called once the whole request has been sent.
    on_sent: Callable[[], None] | None = None
    # Is offered what is read once the answer has begun; None if the provider's pieces are not those of the answer.
    sink: "PieceSink | None" = None
    # Parameters that the model is called without, or with another value. Complete once the request is sent.
    ignored: list[str] = field(default_factory=list)

    def ignore(self, names: Iterable[str]) -> None:
        """Notes parameters that are not sent as the client sent them, if the client sent them."""
        self.ignored += [name for name in names if name in self.parameters.fields and name not in self.ignored]


@dataclass(slots=True)
class ProviderUsage:
    """The usage reported by the provider; None, which is not zero, for missing or implausible counts."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(slots=True, repr=False)
class Piece:
    """The content of one read from the provider. Texts precede the tool calls."""

    contents: list[str] = field(default_factory=list)
    # The texts are a refusal.
    refuses: bool = False
    tool_calls: list[ToolCallFragment] = field(default_factory=list)
    # Reasoning: counted, never shown.
    hidden: str = ""
    finish_reason: str | None = None
    usage: ProviderUsage | None = None
    # The answer is complete; only trailing bytes follow.
    last: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.contents or self.tool_calls or self.hidden or self.finish_reason)


class PieceSink(Protocol):
    """Takes parts of an answer in the callback of their read, so that an ordinary one wakes no task."""

    def take(self, piece: Piece) -> bool:
        """Returns False if something has to be awaited for this piece: the reader of the answer then gets it, and this
        is called again once the reader waits for the next piece."""
        ...

    def take_read(self, read: bytes) -> int:
        """Takes a read as it is, HTTP's framing included, if it has nothing but texts in OpenAI's format: returns the
        bytes of its body, or 0 if it has to be parsed."""
        ...


class Failure(Enum):
    """The kind of a failed provider call, which decides what happens to the chat."""

    # Unreachable, out of quota or broken: fall back to another provider.
    PROVIDER = "provider"
    # Overloaded: another provider may have capacity, and this one later.
    BUSY = "busy"
    # The provider understood the request and refused it; another would do the same.
    REFUSED = "refused"
    # By the provider's count, the prompt and the longest answer exceed its context window.
    CONTEXT = "context"


class ProviderError(Exception):
    """A failed provider call, in our own words: the provider's message may quote the conversation."""

    def __init__(
        self,
        what: str,
        failure: Failure = Failure.PROVIDER,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        figures: Figures | None = None,
        mentions: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.failure = failure
        self.http_status = http_status
        # The provider's own retry-after.
        self.retry_after_s = retry_after_s
        # With Failure.CONTEXT: the provider's figures if a shorter answer may fit; None if it would not.
        self.figures = figures
        # With Failure.REFUSED: the parameters that the provider's message mentions.
        self.mentions = mentions


class ServerRefused(ProviderError):
    """The provider's server refuses connections."""


class CannotDo(ProviderError):
    """The provider does not support what was requested; another may. The message is for the client."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, Failure.REFUSED)
        self.param = param


class Provider(Protocol):
    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        """Yields the pieces of the answer; the one marked `last` ends it, or ProviderError is raised.

        Closing the generator, at any point, closes the connection it reads from."""
        ...

    async def warm(self) -> None:
        """Opens a connection for the first call, if connections are kept. Raises ProviderError."""
        ...

    async def aclose(self) -> None: ...


# Errors of decoding invalid or unexpected JSON. JSON nested too deeply raises RecursionError.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Longer text, of any kind, becomes several pieces. Counting the tokens of this much takes some milliseconds.
LARGEST_PIECE_CHARACTERS: Final = 64 * 1024
# Limit per answer. A call may be identified in three ways: by its index, its id or its name.
MOST_TOOL_CALLS: Final = 1024
_WAYS_TO_TELL_A_CALL: Final = 3
# Some servers embed the model's signature in the id.
LONGEST_CALL_ID_CHARACTERS: Final = 16 * 1024
LONGEST_NAME_CHARACTERS: Final = 1024


class UnreadableAnswer(ProviderError):
    """A part of the answer could not be decoded; nothing was taken from it."""


class ProviderAnswer(ABC):
    """Base class of each provider's parser, which reports by `add_text`, `refuse`, `think`, `call` and `finish`."""

    # Whether the format is OpenAI's, whose reads a sink may take unparsed.
    has_plain_reads = False

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.usage: ProviderUsage | None = None
        # The provider has sent a finish reason: only usage can follow.
        self.is_finished = False
        # Nothing more follows, though the connection may stay open.
        self.is_over = False
        # Length of the last piece.
        self._characters = 0
        self._call_marks: set[tuple[int | None, str | None, str | None]] = set()
        self._calls_without_id = 0

    @abstractmethod
    def read_event(self, data: bytes) -> None:
        """Reads one event of a stream."""

    def read_texts(self, events: list[bytes], at: int, until: int) -> int:
        """Reads events from a place on that have nothing but texts, faster than one by one; returns how many."""
        return 0

    @abstractmethod
    def read_whole(self, body: bytes) -> None:
        """Reads an answer that was not streamed."""

    def begin_piece(self) -> None:
        self.pieces.append(Piece())
        self._characters = 0

    def add_text(self, text: str) -> None:
        characters = self._characters + len(text)
        if characters > LARGEST_PIECE_CHARACTERS:
            self._say_much(text)
            return
        self._characters = characters
        # Texts in a piece precede its tool calls and are of one kind.
        piece = self.pieces[-1]
        if piece.tool_calls or piece.refuses:
            self.begin_piece()
        self.pieces[-1].contents.append(text)

    def add_texts(self, texts: list[str]) -> None:
        characters = self._characters + sum(map(len, texts))
        piece = self.pieces[-1]
        if characters > LARGEST_PIECE_CHARACTERS or piece.tool_calls or piece.refuses:
            for text in texts:
                self.add_text(text)
            return
        self._characters = characters
        piece.contents += texts

    def refuse(self, text: str) -> None:
        """Adds text of a refusal, for providers that distinguish it from an answer."""
        for part in _parts_of(text):
            piece = self._piece_for(part)
            if piece.tool_calls or (piece.contents and not piece.refuses):
                self.begin_piece()
            self.pieces[-1].refuses = True
            self.pieces[-1].contents.append(part)

    def think(self, text: str) -> None:
        """Adds reasoning. Call it once per event: each call copies the text so far."""
        for part in _parts_of(text):
            self._piece_for(part).hidden += part

    def call(self, fragment: ToolCallFragment) -> None:
        self._refuse_too_many(fragment)
        arguments = fragment.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if arguments is None or len(arguments) <= LARGEST_PIECE_CHARACTERS:
            self._piece_for(arguments or "").tool_calls.append(fragment)
            return
        call_id, name = fragment.call_id, fragment.name
        for part in _parts_of(arguments):
            self._piece_for(part).tool_calls.append(ToolCallFragment(fragment.index, call_id, name, part))
            # Sent once; the following fragments continue the same call.
            call_id, name = None, None

    def finish(self, reason: str) -> None:
        """Records the finish reason, in OpenAI's terms or those of its dialects."""
        self.pieces[-1].finish_reason = reason
        self.is_finished = True

    def close(self) -> None:
        """Marks the last piece, once the whole answer has been received."""
        if not self.is_finished:
            raise ProviderError("ended its stream before the answer was complete")
        if not self.pieces:
            self.begin_piece()
        self.pieces[-1].last = True
        self.pieces[-1].usage = self.usage

    def _say_much(self, text: str) -> None:
        for part in _parts_of(text):
            piece = self._piece_for(part)
            if piece.tool_calls or piece.refuses:
                self.begin_piece()
            self.pieces[-1].contents.append(part)

    def _piece_for(self, text: str) -> Piece:
        """Returns the last piece, or a new one if the text does not fit."""
        if self._characters and self._characters + len(text) > LARGEST_PIECE_CHARACTERS:
            self.begin_piece()
        self._characters += len(text)
        return self.pieces[-1]

    def _refuse_too_many(self, fragment: ToolCallFragment) -> None:
        if (
            len(fragment.call_id or "") > LONGEST_CALL_ID_CHARACTERS
            or len(fragment.name or "") > LONGEST_NAME_CHARACTERS
        ):
            raise ProviderError("gave a tool call an endless name")
        if fragment.name and not fragment.call_id:
            # Without an id, every name begins a call.
            self._calls_without_id += 1
        else:
            self._call_marks.add((fragment.index, fragment.call_id, fragment.name))
        if self._calls_without_id + len(self._call_marks) > _WAYS_TO_TELL_A_CALL * MOST_TOOL_CALLS:
            raise ProviderError("made too many tool calls")


def _parts_of(text: str) -> Iterator[str]:
    for start in range(0, len(text), LARGEST_PIECE_CHARACTERS):
        yield text[start : start + LARGEST_PIECE_CHARACTERS]


def read_text_of_object(said: msgspec.Raw) -> str:
    """Returns the JSON of an object unchanged; only the client interprets its fields."""
    said_json = bytes(said)
    if not said_json.startswith(b"{"):
        raise msgspec.ValidationError
    return said_json.decode()


# Metering would refuse a larger count on every attempt.
LARGEST_TOKENS: Final = 10**9
_MOST_DIGITS: Final = len(str(LARGEST_TOKENS))

_Fields = TypeVar("_Fields", bound=msgspec.Struct)


def read_counts(said: msgspec.Raw, fields: msgspec.json.Decoder[_Fields]) -> dict[str, int]:
    """Returns the valid counts among a provider's fields, each of which is `Raw`. They are decoded separately: an
    invalid count does not break a complete answer, and other fields stay undecoded."""
    try:
        told = msgspec.structs.asdict(fields.decode(said))
    except UNREADABLE:
        return {}
    counted = {name: read_count(value) for name, value in told.items()}
    return {name: count for name, count in counted.items() if count is not None}


def read_count(said: msgspec.Raw) -> int | None:
    digits = bytes(said)
    if len(digits) > _MOST_DIGITS or not digits.isdigit():
        return None
    count = int(digits)
    return count if count <= LARGEST_TOKENS else None


def as_object(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def as_count(said: Any) -> int | None:
    """Returns the value if it is a valid count, else None."""
    # An exact type check, since bool is a subclass of int.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None


def total(first: int | None, *others: int | None) -> int | None:
    """Sums counts of which the first is required; None if it is missing or the sum is invalid."""
    return None if first is None else as_count(first + sum(other or 0 for other in others))

"""The interface between providers and the rest of the router."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from legato_protos.router.v1.router_pb2 import Citation
from legato_protos.type.v1 import usage_pb2
from services.chassis.sentence import Sentence
from services.router.prompts.fitting import Figures
from services.router.providers.abilities import UNKNOWN, Abilities
from services.router.providers.authentication.credentials import Credentials
from services.router.reasoning.restoring import TakenBack
from services.router.schema.messages import Messages
from services.router.schema.parameters import Parameters
from services.router.schema.thoughts import Thought
from services.router.schema.tools import ToolCallFragment, Tools
from services.rules.usage import COLUMNS, with_bounded_parts


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    # From the request to the first event of a stream.
    first_byte_s: float = 120.0
    # Between two events of a stream.
    idle_s: float = 60.0
    # For an answer of a model that does not stream.
    whole_s: float = 600.0
    # For a streamed answer, from the request to its end.
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class ProviderRoute:
    """A provider as described in the routes file."""

    name: str
    kind: str
    base_url: str = ""
    # Another key changes nothing about its connections and models either.
    api_key: str = field(default="", repr=False, compare=False)
    # Where the key is read from, again and again; None: from the environment.
    api_key_file: Path | None = field(default=None, compare=False)
    # The header that has the key, if not the usual one of its kind; `authorization`: a Bearer token.
    key_header: str = ""
    # In place of a key: credentials that expire.
    credentials: Credentials | None = None
    # Sent with every request: headers, and parameters of the address. Both may have secrets.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # The cloud that has the vendor's models at addresses of its own.
    platform: str = ""
    # The name of the field for the output limit.
    output_field: str = "max_tokens"
    # A JSON object of fields added to every request.
    extra_json: bytes = b"{}"
    # What its promise to retain no data rests on, and until when it holds. None: its server is the operator's own. A
    # renewed promise changes nothing about its connections and models.
    evidence: str = field(default="", compare=False)
    until: date | None = field(default=None, compare=False)
    # Where its servers are, in the vendor's words; empty: not stated.
    region: str = ""
    # API version, if the provider has several.
    version: str = ""
    # Whether each request has an output limit, or only those where the client, the window or the credit sets one.
    always_max_tokens: bool = False
    # Whether requests to an OpenAI-compatible server ask it not to store them.
    no_store: bool = True
    # Whether it accepts only tool call ids in Mistral's format.
    short_call_ids: bool = False
    # Which of OpenAI's APIs it is asked over; auto: chat completions, and Responses where a model refuses these.
    api: str = "chat"
    # Whether an OpenAI-compatible server is sent back what its model thought before it called tools.
    reasoning_back: bool = True
    # Whether it refuses messages with calls that have no reasoning.
    reasoning_needed: bool = False
    # Whether it accepts only strings as content.
    string_content: bool = False
    # Whether it takes OpenAI's `prompt_cache_key`.
    prompt_cache_key: bool = False
    # Whether it takes what only the servers of open models have, such as `top_k`.
    open_parameters: bool = False
    # Whether it takes a `tool_choice` among some of the tools; others are sent these alone.
    allowed_tools: bool = False
    # Whether it has custom tools, for models that take them.
    custom_tools: bool = False
    # Whether requests mark what the provider may cache, where it caches nothing else.
    prompt_caching: bool = True
    # Whether system messages stay within the conversation, at models that take them there.
    system_inside: bool = True


@dataclass(slots=True, repr=False)
class ProviderCall:
    """One request to a model. The client's JSON has been validated; OpenAI-compatible providers send it unchanged, and
    others translate it from its parsed form."""

    model_name: str
    messages: Messages
    tools: Tools
    parameters: Parameters
    # The output limit, beyond which the answer is cut.
    max_tokens: int
    stream: bool
    # What the model takes of it, if the routes say; None: it is known by its name.
    abilities: Abilities | None = None
    # The same with what refusals have taught; set when it is sent.
    takes: Abilities = UNKNOWN
    # What requests with the same beginning have in common, which no provider is sent; empty: nothing is known.
    cache_identity: bytes = b""
    # Whether the model is sent that limit; a provider whose `needs_max_tokens` is set sends it always.
    is_limit_told: bool = True
    # How long the first token, or a whole answer, is waited for, if that is less than the timeouts allow.
    patience_s: float | None = None
    # Trace context for the provider; empty: none is sent.
    traceparent: str = ""
    # Whether the answer is to name its model.
    is_traced: bool = False
    # Whether the answer is to have what the model thinks, in its vendor's terms, though no tools are offered.
    keeps_thoughts: bool = False
    # Whether a function has a name that not all vendors take.
    has_unusual_names: bool = False
    # The client's names of functions, by those that the model gets in their place. Set when it is sent.
    tool_names: Mapping[str, str] = field(default_factory=dict)
    # Called whenever the whole request has been sent.
    on_sent: Callable[[], None] | None = None
    # Is offered what is read once the answer has begun; None if the provider's pieces are not those of the answer.
    sink: "PieceSink | None" = None
    # Parameters that the model is called without, or with another value, which may follow a colon. Complete once the
    # request is sent.
    ignored: list[str] = field(default_factory=list)

    def ignore(self, names: Iterable[str]) -> None:
        """Records parameters that are not sent as the client sent them, if the client sent them."""
        named = {each.partition(":")[0] for each in self.ignored}
        self.ignored += [name for name in names if name in self.parameters.fields and name not in named]

    def note(self, name: str, used: str) -> None:
        """Records what is used in place of what the client sent as this parameter."""
        self.ignored[:] = [each for each in self.ignored if each.partition(":")[0] != name]
        self.ignored.append(f"{name}: {used}")

    def leave_out(self, names: Collection[str]) -> None:
        """Leaves out parameters that the provider does not know."""
        self.ignore(names)
        self.parameters = self.parameters.without(names)

    def leave_out_stops(self, is_refused: Callable[[str], bool]) -> None:
        """Leaves out the stops that the provider would refuse, and keeps the others."""
        stops = self.parameters.known.stops
        kept = [stop for stop in stops if not is_refused(stop)]
        if len(kept) == len(stops):
            return
        self.ignore(("stop",))
        others = self.parameters.without(("stop",))
        self.parameters = others.with_fields({"stop": Raw(msgspec.json.encode(kept))} if kept else {})


class ProviderUsage(msgspec.Struct):
    """The usage reported by the provider; None, which is not zero, for missing or implausible counts."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    # Of the prompt's tokens, those written to the provider's cache, and of these those to be kept for an hour.
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    # Of the answer's tokens, those of reasoning.
    reasoning_tokens: int | None = None
    # Of traced calls: the model that answered.
    model_name: str = ""

    def charged(self, prompt_tokens: int, completion_tokens: int) -> usage_pb2.Usage:
        """Returns what is charged, with our own counts where the provider's are missing or zero: neither a prompt nor
        an output is empty. A part has no more tokens than the whole."""
        own = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        counts = with_bounded_parts([getattr(self, name) or own.get(name, 0) for name in COLUMNS])
        return usage_pb2.Usage(**dict(zip(COLUMNS, counts, strict=True)))


class Piece(msgspec.Struct):
    """The content of one read from the provider. Texts precede the tool calls."""

    contents: list[str] = msgspec.field(default_factory=list)
    # The texts are a refusal.
    refuses: bool = False
    tool_calls: list[ToolCallFragment] = msgspec.field(default_factory=list)
    # Reasoning: counted, never shown.
    hidden: str = ""
    finish_reason: str | None = None
    usage: ProviderUsage | None = None
    # The answer is complete; only trailing bytes follow.
    last: bool = False
    # Of an answer whose client is told: what the model thought before these texts, and after all that it said before
    # them, in its vendor's terms.
    thoughts_before: Sequence[Thought] = ()
    # With the last: what it thought after its last call, or its last text of such an answer.
    thoughts: Sequence[Thought] = ()
    # With the last: what the answer cites, as its vendor says.
    citations: Sequence[Citation] = ()

    # It has what the model said.
    __repr__ = object.__repr__

    def finish(self, reason: str | None, usage: ProviderUsage | None, thoughts: Sequence[Thought] = ()) -> None:
        """Makes this the last piece of its answer."""
        self.finish_reason, self.usage, self.last, self.thoughts = reason, usage, True, thoughts

    def take_usage(self) -> ProviderUsage | None:
        """Returns the usage and leaves none, nor citations, whose places are in the text of this call alone."""
        usage, self.usage, self.citations = self.usage, None, ()
        return usage

    @property
    def is_empty(self) -> bool:
        return self.has_no_content and not self.finish_reason

    @property
    def has_no_content(self) -> bool:
        return not (self.contents or self.tool_calls or self.hidden)


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
    # The provider understood the request and refused it, for example for a field that it does not know.
    REFUSED = "refused"
    # The provider's policy does not allow the content: no other is asked to write it.
    POLICY = "policy"
    # By the provider's count, the prompt and the longest answer exceed its context window.
    CONTEXT = "context"


class RefusalCause(NamedTuple):
    """Why a provider refuses a request, with its sentence for the client and the field of the request that it is
    about."""

    sentence: Sentence
    param: str


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
        param: str = "",
        cause: RefusalCause | None = None,
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
        # With Failure.REFUSED: the field that the provider names as the cause.
        self.param = param
        # With Failure.REFUSED: why, if the provider's message begins with words that are known.
        self.cause = cause

    def reclassify(self, failure: Failure) -> None:
        """Changes the kind to what the caller knows beside the provider's answer."""
        self.failure = failure


class ServerRefused(ProviderError):
    """The provider's server refuses connections."""


class ProviderTimedOut(ProviderError):
    """The provider took too long."""

    def __init__(self, what: str = "took too long to answer") -> None:
        super().__init__(what)


class CannotDo(ProviderError):
    """The provider does not support what was requested; another may. The sentence is for the client."""

    def __init__(self, sentence: Sentence, param: str) -> None:
        super().__init__("cannot do what was requested", Failure.REFUSED)
        self.sentence = sentence
        self.param = param

    def __str__(self) -> str:
        return str(self.sentence)


class Provider(Protocol):
    # What OpenTelemetry calls it.
    telemetry_name: str
    # Whether each request needs an output limit.
    needs_max_tokens: bool

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        """Yields the pieces of the answer; the one marked `last` ends it, or ProviderError is raised.

        Closing the generator, at any point, closes the connection it reads from."""
        ...

    def takes_back(self, model_name: str) -> TakenBack:
        """Returns which earlier thoughts a model is sent."""
        ...

    async def warm(self) -> Sequence[str]:
        """Opens a connection for the first call, if connections are kept, and returns the names in the server's
        certificate. Raises ProviderError."""
        ...

    def learned(self, model_name: str, abilities: Abilities | None) -> Sequence[str]:
        """Describes what refusals have told of a model, beyond what is known of it."""
        ...

    @property
    def credentials_failure(self) -> str:
        """Says why credentials that expire could not be renewed; empty if they were, or there are none."""
        ...

    def use_key(self, api_key: str) -> None:
        """Sends this API key with the calls that begin from now on; running ones and connections are kept."""
        ...

    async def aclose(self) -> None: ...


# Errors of decoding invalid or unexpected JSON. JSON nested too deeply raises RecursionError.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Metering would refuse a larger count on every attempt.
LARGEST_TOKENS: Final = 10**9


def as_object(said: object) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def as_count(said: object) -> int | None:
    """Returns the value if it is a valid count, else None."""
    # An exact type check, since bool is a subclass of int.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None

"""What a provider is to the rest of the router."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from services.router.answers.toolcalls import ToolCallFragment


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    # From the request to the first event of a stream.
    first_byte_s: float = 120.0
    # Between two events of a stream.
    idle_s: float = 60.0
    # For an answer that comes in one piece.
    whole_s: float = 600.0
    # For an answer that comes as a stream, from the request to its end.
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class ProviderRoute:
    """One provider as the routes file describes it."""

    name: str
    kind: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    # The name under which the limit on output goes upstream.
    output_field: str = "max_tokens"
    # Fields that go upstream with every request: a JSON object.
    extra_json: bytes = b"{}"
    # Of the provider's interface, where that has several.
    version: str = ""
    # Whether a server that speaks OpenAI's language is told with every request to keep nothing of it.
    no_store: bool = True
    # Whether it takes no ids of tool calls but those that Mistral's models give.
    short_call_ids: bool = False
    # Whether it takes no content but strings.
    string_content: bool = False


@dataclass(frozen=True, slots=True)
class ProviderEnvironment:
    """What providers need to know that is not in the routes file."""

    timeouts: Timeouts
    local_model_socket: Path


@dataclass(slots=True, repr=False)
class ProviderCall:
    """One request to a model. All JSON is the client's own, checked; it is sent on as it is."""

    model_name: str
    messages_json: bytes
    # Empty: none.
    tools_json: bytes
    tool_choice_json: bytes
    parameters_json: bytes
    max_tokens: int
    stream: bool
    # For the provider, if it is to go on with our trace; empty: it is not.
    traceparent: str = ""
    # Called when the provider has been sent all of it.
    on_sent: Callable[[], None] | None = None


@dataclass(slots=True)
class ProviderUsage:
    """What the provider counted; None where it said nothing that can be true, which is not zero."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(slots=True, repr=False)
class Piece:
    """All that one read from the provider brought. The texts stand before the tool calls."""

    contents: list[str] = field(default_factory=list)
    # The texts are said in place of an answer.
    refuses: bool = False
    tool_calls: list[ToolCallFragment] = field(default_factory=list)
    # Reasoning: counted, never shown.
    hidden: str = ""
    finish_reason: str | None = None
    usage: ProviderUsage | None = None
    # The answer is whole; whatever follows is housekeeping.
    last: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.contents or self.tool_calls or self.hidden or self.finish_reason)


class Failure(Enum):
    """What a failed call to a provider means for the chat."""

    # Not reached, out of quota, broken: another provider may do better.
    PROVIDER = "provider"
    # It has no room at this moment: another provider may, and this one later.
    BUSY = "busy"
    # The provider understood the request and refused it; another would do the same.
    REFUSED = "refused"
    # By the provider's count, the prompt and the longest answer exceed its window.
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a provider said about the length of a prompt, by its own count; None: it did not say."""

    context_tokens: int | None = None
    prompt_tokens: int | None = None
    # The prompt and the limit on output that was asked for.
    total_tokens: int | None = None


class ProviderError(Exception):
    """Says what happened in our own words: what the provider said may quote the conversation."""

    def __init__(
        self,
        what: str,
        failure: Failure = Failure.PROVIDER,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        figures: Figures | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.failure = failure
        self.http_status = http_status
        # As it asked for itself.
        self.retry_after_s = retry_after_s
        # With Failure.CONTEXT: a shorter answer may fit, and this is what the provider said of it. None: it would not.
        self.figures = figures


class CannotDo(ProviderError):
    """The provider has no way to do what was asked for; another one may have. Says it for the client to read."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, Failure.REFUSED)
        self.param = param


class Provider(Protocol):
    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        """The pieces of the answer as they come; the one marked `last` ends it, or ProviderError is raised.

        Closing the generator, at any point, closes the connection it reads from."""
        ...

    async def warm(self) -> None:
        """Opens a connection for the first call to use, where that is kept. Raises ProviderError."""
        ...

    async def aclose(self) -> None: ...

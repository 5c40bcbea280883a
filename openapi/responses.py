"""The bodies of responses as structs, from which the document's schemas are made; they also validate its examples."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from edge.wire.messages import CalledFunction

RequestId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
CompletionId = Annotated[str, Meta(pattern="^chatcmpl-[0-9a-f]{32}$")]
Count = Annotated[int, Meta(ge=0)]
UnixSeconds = Annotated[int, Meta(ge=0, description="Seconds since 1970.")]
Usd = Annotated[str, Meta(pattern=r"^-?[0-9]+(\.[0-9]+)?$", description="Dollars, exact.")]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class _Response(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class Error(_Response):
    """An error. Programs should use `code`; `param` is the field that caused the error, if any."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(_Response):
    """The shape of every error."""

    error: Error


class Model(_Response):
    """A class of models."""

    id: str
    object: Literal["model"]
    created: UnixSeconds
    owned_by: str


class ModelList(_Response):
    """The classes on offer."""

    object: Literal["list"]
    data: list[Model]


class PromptTokensDetails(_Response):
    """A breakdown of the prompt's tokens."""

    cached_tokens: Count


class TokenUsage(_Response):
    """The tokens that are charged."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptTokensDetails
    cut_by: Literal["credit", "spend_limit"] | UnsetType = field(name="x-legato-end", default=UNSET)


class UrlCitation(_Response):
    """A source, and the characters of the answer that cite it."""

    start_index: Count
    end_index: Count
    title: str
    url: str


class Annotation(_Response):
    """A citation."""

    type: Literal["url_citation"]
    url_citation: UrlCitation


class ToolCallMade(_Response):
    """A call of one of the request's tools."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AnswerMessage(_Response):
    """The message of the model."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: list[ToolCallMade] | UnsetType = UNSET
    annotations: list[Annotation] | UnsetType = UNSET


class Choice(_Response):
    """The answer; there is always one."""

    index: Literal[0]
    message: AnswerMessage
    logprobs: None
    finish_reason: FinishReason


class ChatCompletion(_Response):
    """A whole answer."""

    id: CompletionId
    object: Literal["chat.completion"]
    created: UnixSeconds
    model: Annotated[str, Meta(description="The class that served.")]
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=1)]
    usage: TokenUsage


class FunctionDelta(_Response):
    """More of a call's arguments; its name comes first."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(_Response):
    """A piece of a tool call; its id comes first."""

    index: Count
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(_Response):
    """A piece of the answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    annotations: list[Annotation] | UnsetType = UNSET


class ChunkChoice(_Response):
    """The choice of one chunk."""

    index: Literal[0]
    delta: Delta
    finish_reason: FinishReason | None


class ChatCompletionChunk(_Response):
    """The data of one event of a stream. The last has the usage and no choices; `[DONE]` follows it."""

    id: CompletionId
    object: Literal["chat.completion.chunk"]
    created: UnixSeconds
    model: str
    choices: Annotated[list[ChunkChoice], Meta(max_length=1)]
    usage: TokenUsage | UnsetType = UNSET


class UsageResult(_Response):
    """Usage in one bucket. `model` and `key_id` are null unless grouped by them."""

    object: Literal["usage.result"]
    model: str | None
    key_id: str | None
    requests: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    cost_nanos: int
    cost_usd: Usd


class UsageBucket(_Response):
    """An hour or a day, in UTC."""

    object: Literal["bucket"]
    start_time: UnixSeconds
    end_time: UnixSeconds
    results: list[UsageResult]


class SpendLimit(_Response):
    """A spend limit of the account, or of the key if it has an id, and what new requests may use of it."""

    object: Literal["spend_limit"]
    key_id: str | None
    period: Literal["day", "month", "total"]
    limit_usd: Usd
    spent_usd: Usd
    left_usd: Usd
    resets_at: UnixSeconds | None


class UsagePage(_Response):
    """Usage of the account that owns the key, its remaining credit, and the spend limits that apply to the key."""

    object: Literal["page"]
    data: list[UsageBucket]
    has_more: bool
    next_page: Annotated[str, Meta(pattern="^[0-9]+$")] | None
    balance_usd: Usd
    owed_usd: Usd
    spend_limits: list[SpendLimit]


class UsageRequest(_Response):
    """The state and cost of one request."""

    object: Literal["usage.request"]
    id: RequestId
    state: Literal["running", "settled", "void", "swept"] | None
    model: str | None
    key_id: str | None
    created: UnixSeconds | None
    ended: UnixSeconds | None
    end: str | None
    basis: str | None
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    cost_nanos: int
    cost_usd: Usd
    held_nanos: Count
    price_version: Count | None

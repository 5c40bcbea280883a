"""The JSON of a chat as the OpenAPI document shows it.

The request is the edge's own structs, with types where the edge keeps bytes: it validates those parts one by one for
speed (`edge/wire/chat_request.py`). The response is written piece by piece (`edge/wire/completion_json.py`); tests
compare.
"""

# mypy: disable-error-code="assignment, valid-type"
# Replacing the type of a field is the purpose of this module.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field

from edge.wire import request_fields as fields
from edge.wire.chat_request import MOST_TOOLS
from edge.wire.completion_json import DETAILS
from edge.wire.request_fields import (
    IF_TAKEN,
    AllowedToolsChoice,
    CalledCustomTool,
    CalledFunction,
    ForcedCustomTool,
    ForcedTool,
)
from services.rules.usage import parts_of


def _described(kind: type[Struct], meaning: str, **types: Any) -> Any:
    """Returns a struct of the edge with a description, and with these types; of an optional field, with its default."""
    typed = [(name, *(given if isinstance(given, tuple) else (given,))) for name, given in types.items()]
    return defstruct(kind.__name__, typed, bases=(kind,), kw_only=True, namespace={"__doc__": meaning})


TextPart = _described(
    fields.TextPart,
    "A part of a message's content: a text, or in a message of the assistant its `refusal`.",
    type=Literal["text", "refusal"],
)
Content = str | Annotated[list[TextPart], Meta(min_length=1)]
SystemMessage = _described(fields.SystemMessage, "Instructions for the model.", content=Content)
DeveloperMessage = _described(fields.DeveloperMessage, "The same as a system message.", content=Content)
UserMessage = _described(fields.UserMessage, "A message of the user.", content=Content)
ToolMessage = _described(fields.ToolMessage, "The result of a tool call.", content=Content)
AssistantMessage = _described(
    fields.AssistantMessage,
    "An earlier answer of the model: content, tool calls or a refusal, at least one of them.",
    content=(Content | None, None),
    tool_calls=(list[fields.ToolCall] | None, None),
)
Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage

FunctionDefinition = _described(
    fields.FunctionDefinition,
    "A function that the model may call; `parameters` is a JSON schema.",
    name=Annotated[str, Meta(pattern="^[a-zA-Z0-9_.:/-]{1,128}$")],
)
CustomToolDefinition = _described(
    fields.CustomToolDefinition,
    "A tool whose input is any text, or of a grammar. Models are told a function with the text as its argument.",
    name=Annotated[str, Meta(pattern="^[a-zA-Z0-9_.:/-]{1,128}$")],
)


class FunctionTool(Struct, tag_field="type", tag="function"):
    """A tool: a function."""

    function: FunctionDefinition


class CustomTool(Struct, tag_field="type", tag="custom"):
    """A tool: any text is its input."""

    custom: CustomToolDefinition


ToolDefinition = FunctionTool | CustomTool


class ResponseFormat(fields.ResponseFormatField):
    """The form of the answer. `json_schema` is needed for the type of that name."""


IGNORED = "Accepted, and named in `x-legato-ignored`."
NOT_USED = "Accepted and not used."
CACHE_KEY = "Requests with the same value meet the same prompt cache, if the provider has keys for its cache."

# Not looked at.
AnyValue = bool | float | str | list[Any] | dict[str, Any] | None
WholeNumber = Annotated[int, Meta(ge=1)]


class ChatRequest(fields.Body, kw_only=True):
    """A chat. `null` is the same as absent; fields that are not listed here are ignored, and named in
    `x-legato-ignored`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: Annotated[str, Meta(description="A class: `auto`, `mezzo`, `forte` or `fortissimo`.")] | None = None
    stream: Annotated[bool, Meta(description="Server-sent events instead of one JSON object.")] | None = None
    max_tokens: WholeNumber | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, description="Overrides `max_tokens`.")] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[ToolDefinition], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | ForcedTool | ForcedCustomTool | AllowedToolsChoice | None = None
    n: Annotated[int, Meta(ge=1, le=1, description="Only one choice is supported.")] | None = None
    logprobs: Annotated[bool, Meta(description="Not supported: `true` is refused.")] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=0, description="Not supported.")] | None = None
    metadata: Annotated[dict[str, str | None], Meta(description="Accepted and not used.")] | None = None
    include_reasoning: Annotated[bool, Meta(description="The answer tells what the model thinks.")] | None = None
    logit_bias: Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(description=IF_TAKEN)] | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(description=IF_TAKEN)] | None = None
    functions: Annotated[None, Meta(description="Not supported: use `tools`.")] = None
    function_call: Annotated[None, Meta(description="Not supported: use `tools` and `tool_choice`.")] = None
    modalities: Annotated[list[Literal["text"]], Meta(description="Only text is supported.")] | None = None
    audio: Annotated[None, Meta(description="Not supported: answers are text.")] = None
    prediction: Annotated[AnyValue, Meta(description=IGNORED)] = None
    web_search_options: Annotated[AnyValue, Meta(description=IGNORED)] = None
    store: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    service_tier: Annotated[AnyValue, Meta(description=IGNORED)] = None
    moderation: Annotated[fields.Moderation, Meta(description=f"{IGNORED} `block` is refused.")] | None = None
    prompt_cache_key: Annotated[AnyValue, Meta(description=CACHE_KEY)] = None
    prompt_cache_retention: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    safety_identifier: Annotated[AnyValue, Meta(description=NOT_USED)] = None


CompletionId = Annotated[str, Meta(pattern="^chatcmpl-[0-9a-f]{32}$")]
Count = Annotated[int, Meta(ge=0)]
UnixSeconds = Annotated[int, Meta(ge=0, description="Seconds since 1970.")]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class _Response(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


_OWNERS = {"prompt_tokens": "prompt's", "completion_tokens": "answer's"}


def _details(whole: str) -> Any:
    """Returns the struct of the object that breaks a count down."""
    name = "".join(map(str.title, f"{whole}_details".split("_")))
    meaning = f"A breakdown of the {_OWNERS[whole]} tokens."
    return defstruct(
        name, [(part, Count) for part in parts_of(whole)], bases=(_Response,), namespace={"__doc__": meaning}
    )


TokenUsage = defstruct(
    "TokenUsage",
    [
        ("prompt_tokens", Count),
        ("completion_tokens", Count),
        ("total_tokens", Count),
        *((details, _details(details.removesuffix("_details"))) for details in DETAILS),
        ("cut_by", Literal["credit", "spend_limit"] | UnsetType, field(name="x-legato-end", default=UNSET)),
    ],
    bases=(_Response,),
    namespace={"__doc__": "The tokens that are charged."},
)


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


class ReasoningDetail(_Response):
    """The model's thoughts, sealed: they are sent back as they are with the message."""

    type: Literal["reasoning.encrypted"]
    format: Literal["legato-v1"]
    index: Literal[0]
    data: str


class FunctionCallMade(_Response, tag_field="type", tag="function"):
    """A call of one of the request's functions."""

    id: str
    function: CalledFunction


class CustomCallMade(_Response, tag_field="type", tag="custom"):
    """A call of one of the request's custom tools."""

    id: str
    custom: CalledCustomTool


class AnswerMessage(_Response):
    """The message of the model."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: list[FunctionCallMade | CustomCallMade] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] | UnsetType = UNSET
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


class CustomDelta(_Response):
    """More of the input of a custom tool; its name comes first."""

    input: str
    name: str | UnsetType = UNSET


class ToolCallDelta(_Response):
    """A piece of a tool call; its id comes first."""

    index: Count
    function: FunctionDelta | UnsetType = UNSET
    custom: CustomDelta | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET


class Delta(_Response):
    """A piece of the answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] | UnsetType = UNSET
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

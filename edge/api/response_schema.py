"""The JSON of a response as the OpenAPI document shows it: the edge's own structs, with types where it keeps bytes.

Answers are rendered by `edge/responses/events.py`; tests compare.
"""

# mypy: disable-error-code="assignment, valid-type"
# Replacing the type of a field is the purpose of this module.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from edge.api.chat_schema import CACHE_KEY, NOT_USED, AnyValue, UnixSeconds, UrlCitation
from edge.responses import fields
from edge.wire.request_fields import IF_TAKEN

_Object = dict[str, Any] | None
_STATELESS = "Not supported, since nothing is stored here."


class InputItem(Struct):
    """A part of the conversation. A `message` has a role and content; a call and its output have the same `call_id`.
    Without a type it is a message. Items of other types are refused."""

    type: (
        Literal[
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
            "web_search_call",
        ]
        | None
    ) = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Annotated[AnyValue, Meta(description="A string, or parts with text or a refusal.")] = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Annotated[str, Meta(description="Of a function: JSON.")] | None = None
    input: Annotated[str, Meta(description="Of a custom tool: any text.")] | None = None
    output: Annotated[AnyValue, Meta(description="A string, or parts with text.")] = None
    encrypted_content: Annotated[str, Meta(description="Of reasoning, as it came.")] | None = None


class ResponseTool(Struct):
    """A function, a custom tool that takes any text, a namespace of these, or a search of the web."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: Annotated[_Object, Meta(description="A JSON schema.")] = None
    strict: bool | None = None
    format: Annotated[_Object, Meta(description="Of a custom tool: the grammar of its input.")] = None
    tools: Annotated[list[dict[str, Any]], Meta(description="Of a namespace.")] | None = None


class TextOptions(fields.TextOptions):
    """The form of the answer's text."""

    format: Annotated[_Object, Meta(description="`text`, `json_object`, or `json_schema` with its schema.")] = None


class ResponseRequest(fields.ResponseBody, kw_only=True):
    """A request for a response. `null` is the same as absent; fields that are not listed here are ignored, and
    named in `x-legato-ignored`."""

    input: Annotated[
        str | list[InputItem], Meta(description="A question, or the items of the whole conversation, at least one.")
    ]
    instructions: Annotated[str, Meta(description="A system message before the input.")] | None = None
    model: Annotated[str, Meta(description="A class: `auto`, `mezzo`, `forte` or `fortissimo`.")] | None = None
    stream: Annotated[bool, Meta(description="Server-sent events instead of one JSON object.")] | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Annotated[AnyValue, Meta(description="A mode, one of the tools, or `allowed_tools`.")] = None
    text: TextOptions | None = None
    reasoning: Annotated[fields.ReasoningOptions, Meta(description=IF_TAKEN)] | None = None
    truncation: Annotated[
        Literal["auto", "disabled"], Meta(description="Nothing is cut: `auto` is named in `x-legato-ignored`.")
    ] | None = None  # fmt: skip
    metadata: Annotated[dict[str, str | None], Meta(description="Told again in the answer.")] | None = None
    prompt_cache_key: Annotated[AnyValue, Meta(description=CACHE_KEY)] = None
    top_logprobs: Annotated[int, Meta(ge=0, le=0, description="Not supported.")] | None = None
    store: Annotated[Literal[False], Meta(description="Nothing is stored here.")] | None = None
    background: Annotated[Literal[False], Meta(description=_STATELESS)] | None = None
    previous_response_id: Annotated[None, Meta(description=_STATELESS)] = None
    conversation: Annotated[None, Meta(description=_STATELESS)] = None
    prompt: Annotated[None, Meta(description=_STATELESS)] = None
    context_management: Annotated[
        Annotated[list[AnyValue], Meta(max_length=0)] | None, Meta(description="Not supported.")
    ] = None
    stream_options: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    client_metadata: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    service_tier: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    safety_identifier: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    prompt_cache_retention: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    prompt_cache_options: Annotated[AnyValue, Meta(description=NOT_USED)] = None


ResponseId = Annotated[str, Meta(pattern="^resp_[0-9a-f]{32}$")]
Count = Annotated[int, Meta(ge=0)]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class _Told(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ResponseCitation(UrlCitation, tag_field="type", tag="url_citation"):
    """A source, and the characters of the text that cite it."""


class OutputText(_Told, tag_field="type", tag="output_text"):
    """Text."""

    text: str
    annotations: list[ResponseCitation]
    logprobs: Annotated[list[AnyValue], Meta(max_length=0)]


class OutputRefusal(_Told, tag_field="type", tag="refusal"):
    """A refusal: the model says it in place of an answer."""

    refusal: str


class OutputMessage(_Told, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText | OutputRefusal]


class _Call(_Told):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET


class FunctionCall(_Call, tag_field="type", tag="function_call", kw_only=True):
    """A call of a function."""

    arguments: str


class CustomToolCall(_Call, tag_field="type", tag="custom_tool_call", kw_only=True):
    """A call of a custom tool."""

    input: str


class InputTokensDetails(_Told):
    """A breakdown of the input's tokens."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputTokensDetails(_Told):
    """A breakdown of the output's tokens."""

    reasoning_tokens: Count


class ResponseUsage(_Told):
    """The tokens that are charged."""

    input_tokens: Count
    input_tokens_details: InputTokensDetails
    output_tokens: Count
    output_tokens_details: OutputTokensDetails
    total_tokens: Count
    cut_by: Literal["credit", "spend_limit"] | UnsetType = field(name="x-legato-end", default=UNSET)


class SummaryText(_Told, tag_field="type", tag="summary_text"):
    """The model's thoughts in words."""

    text: str


class Reasoning(_Told, tag_field="type", tag="reasoning"):
    """The model's thoughts, for a request that asks for them. Send them back as they are."""

    id: str
    summary: list[SummaryText]
    encrypted_content: str | UnsetType = UNSET


class ResponseFailure(_Told):
    """Why an answer has failed."""

    code: str | None
    message: str


class IncompleteDetails(_Told):
    """Why an answer is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class ToldReasoning(_Told):
    """The way in which the model was asked to think."""

    effort: str | None
    summary: str | None


class ToldText(_Told):
    """The form of the answer's text."""

    format: dict[str, Any]
    verbosity: str | UnsetType = UNSET


class Response(_Told):
    """An answer. It does not repeat the input, the instructions and the tools."""

    id: ResponseId
    object: Literal["response"]
    created_at: UnixSeconds
    completed_at: UnixSeconds | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseFailure | None
    frequency_penalty: float
    incomplete_details: IncompleteDetails | None
    instructions: None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: dict[str, str | None]
    model: Annotated[str, Meta(description="The class that served.")]
    output: list[OutputMessage | FunctionCall | CustomToolCall | Reasoning]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: ToldReasoning
    safety_identifier: None
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float
    text: ToldText
    tool_choice: AnyValue
    tools: Annotated[list[AnyValue], Meta(max_length=0)]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None


class ResponseEvent(Struct, kw_only=True):
    """An event of a stream. Its further fields follow from its type."""

    type: Annotated[str, Meta(pattern=r"^(response\.[a-z_.]+|error)$")]
    sequence_number: Count
    response: Response | UnsetType = UNSET

"""The JSON of Anthropic's Messages as the OpenAPI document shows it.

The request is the edge's own struct, with types where the edge keeps bytes. Answers are rendered in
`edge/messages/`; tests compare them with the types of Anthropic's own client.
"""

# mypy: disable-error-code="assignment, valid-type"
# Replacing the type of a field is the purpose of this module.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from edge.api.chat_schema import NOT_USED, AnyValue, Count, WholeNumber
from edge.messages import fields
from edge.wire.chat_request import MOST_TOOLS
from edge.wire.request_fields import IF_TAKEN

_REFUSED = "Not supported: refused unless it is null."
_CacheControl = Annotated[dict[str, Any], Meta(description="Models of Anthropic may cache the prompt up to here.")]


class TextBlock(Struct, tag_field="type", tag="text", kw_only=True):
    """A text."""

    text: str
    cache_control: _CacheControl | None = None


class ToolUseBlock(Struct, tag_field="type", tag="tool_use", kw_only=True):
    """A call of a tool, in an earlier answer."""

    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Struct, tag_field="type", tag="tool_result", kw_only=True):
    """The result of a call, in the user's next message."""

    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: _CacheControl | None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """A thought of an earlier answer, as it came. The model that had it is sent it; others are not."""

    thinking: AnyValue = None
    signature: str | None = None


class RedactedThinkingBlock(Struct, tag_field="type", tag="redacted_thinking"):
    """A thought of an earlier answer that has no text, as it came."""

    data: str | None = None


class UserMessageParam(Struct, tag_field="role", tag="user"):
    """A message of the user, or results of calls."""

    content: str | Annotated[list[TextBlock | ToolResultBlock], Meta(min_length=1)]


class AssistantMessageParam(Struct, tag_field="role", tag="assistant"):
    """An earlier answer, which may have been empty."""

    content: str | list[TextBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock]


class SystemMessageParam(Struct, tag_field="role", tag="system"):
    """Guidance for the model, from here on."""

    content: str | Annotated[list[TextBlock], Meta(min_length=1)]


class CustomTool(Struct, kw_only=True):
    """A function that the model may call; `input_schema` is a JSON schema."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_.:/-]{1,128}$")]
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: _CacheControl | None = None


class JsonOutputFormat(fields.OutputFormat, kw_only=True):
    """The JSON schema that the answer follows."""

    schema: dict[str, Any]


class MessageOutputConfig(fields.OutputConfig, kw_only=True):
    """The effort that the answer is worth, and its form."""

    format: JsonOutputFormat | None = None


class MessagesRequest(fields.MessagesBody, kw_only=True):
    """A chat in the form of Anthropic's Messages. `null` is the same as absent; fields that are not listed here are
    ignored, and named in `x-legato-ignored`."""

    messages: Annotated[list[UserMessageParam | AssistantMessageParam | SystemMessageParam], Meta(min_length=1)]
    model: Annotated[str, Meta(description="A class: `auto`, `mezzo`, `forte` or `fortissimo`.")] | None = None
    system: Annotated[str | list[TextBlock], Meta(description="Guidance for the model.")] | None = None
    max_tokens: Annotated[WholeNumber, Meta(description="Without it, the answer is as long as fits.")] | None = None
    stream: Annotated[bool, Meta(description="Server-sent events instead of one JSON object.")] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, description=IF_TAKEN)] | None = None
    tools: Annotated[list[CustomTool], Meta(max_length=MOST_TOOLS)] | None = None
    output_config: MessageOutputConfig | None = None
    output_format: JsonOutputFormat | None = None
    cache_control: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    service_tier: Annotated[AnyValue, Meta(description=NOT_USED)] = None
    compaction: Annotated[None, Meta(description=_REFUSED)] = None
    container: Annotated[None, Meta(description=_REFUSED)] = None
    inference_geo: Annotated[None, Meta(description=_REFUSED)] = None
    mcp_servers: Annotated[None, Meta(description=_REFUSED)] = None
    thread: Annotated[None, Meta(description=_REFUSED)] = None


class _Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ThinkingTokens(_Answer):
    """A breakdown of the output's tokens."""

    thinking_tokens: Count


class MessageUsage(_Answer):
    """The tokens that are charged. Those of the input are the sum of three counts."""

    input_tokens: Count
    cache_creation_input_tokens: Count
    cache_read_input_tokens: Count
    output_tokens: Count
    output_tokens_details: ThinkingTokens
    cut_by: Literal["credit", "spend_limit"] | UnsetType = field(name="x-legato-end", default=UNSET)


class AnswerText(_Answer, tag_field="type", tag="text"):
    """A text of the model."""

    text: str
    citations: list[dict[str, Any]] | None


class AnswerThinking(_Answer, tag_field="type", tag="thinking"):
    """The model's thoughts, for a request that has it think. Send them back as they are."""

    thinking: str
    signature: str


class AnswerRedactedThinking(_Answer, tag_field="type", tag="redacted_thinking"):
    """The model's thoughts without a text. Send them back as they are."""

    data: str


class AnswerCall(_Answer, tag_field="type", tag="tool_use"):
    """A call of one of the request's tools."""

    id: str
    name: str
    input: dict[str, Any]


class MessageAnswer(_Answer):
    """A whole answer."""

    id: Annotated[str, Meta(pattern="^msg_[0-9a-f]{32}$")]
    type: Literal["message"]
    role: Literal["assistant"]
    model: Annotated[str, Meta(description="The class that served.")]
    content: list[AnswerText | AnswerThinking | AnswerRedactedThinking | AnswerCall]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]
    stop_sequence: Annotated[str | None, Meta(description="The stop that ended the answer, if its provider tells.")]
    usage: MessageUsage
    context_management: dict[str, Any] | UnsetType = UNSET

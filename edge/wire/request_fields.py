"""The fields of a chat request, as they are validated; `edge/api/chat_schema.py` describes them to clients.

Messages, tools and other large fields are kept as bytes at first, and validated one element at a time.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Raw, Struct

NULL: Final = Raw(b"null")
ABSENT: Final = Raw()


class UnreadObject(Struct, gc=False):
    """Any object. Its fields are not used here, and so not decoded."""


# A prompt may have 100,000 of these structs. They form no reference cycles, so gc=False spares the collector them.
class TextPart(Struct, gc=False):
    type: str
    text: str | None = None
    # What the assistant said in place of an answer, as a part of its message.
    refusal: str | None = None
    # OpenAI's mark for its cache, which is not passed on.
    prompt_cache_breakpoint: UnreadObject | None = None


# Validated after the rest of a message.
Content = str | Annotated[list[Raw], Meta(min_length=1)]


class CalledFunction(Struct, gc=False):
    name: str
    arguments: str


class CalledCustomTool(Struct, gc=False):
    name: str
    input: str


class ToolCall(Struct, gc=False):
    id: Annotated[str, Meta(min_length=1)]
    # One of the two, by the type.
    function: CalledFunction | None = None
    custom: CalledCustomTool | None = None
    type: Literal["function", "custom"] = "function"


# Only the assistant calls tools. Null is the same as absent, and an empty list nearly so.
NoCalls = Annotated[list[Raw], Meta(max_length=0)] | None


class _Content(Struct, kw_only=True, gc=False):
    """The fields of any message. Those that a role has no use for are passed on too, so their types are checked."""

    content: Raw
    name: str | None = None
    tool_calls: NoCalls = None
    tool_call_id: str | None = None
    refusal: str | None = None


class SystemMessage(_Content, tag_field="role", tag="system", gc=False): ...


class DeveloperMessage(_Content, tag_field="role", tag="developer", gc=False): ...


class UserMessage(_Content, tag_field="role", tag="user", gc=False): ...


class ToolMessage(_Content, tag_field="role", tag="tool", kw_only=True, gc=False):
    # Required for this role.
    tool_call_id: Annotated[str, Meta(min_length=1)]


class AssistantMessage(Struct, tag_field="role", tag="assistant", gc=False):
    content: Raw = NULL
    name: str | None = None
    tool_calls: list[Raw] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


class PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A role and a text, and nothing else, as most messages have."""

    role: Literal["system", "developer", "user", "assistant"]
    # A string.
    content: Raw


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(Struct):
    name: str
    description: str | None = None
    parameters: UnreadObject | None = None
    strict: bool | None = None


class InputGrammar(Struct):
    """The grammar of a custom tool's input."""

    definition: str
    syntax: Literal["lark", "regex"]


class InputFormat(Struct):
    """The form of a custom tool's input."""

    type: Literal["text", "grammar"]
    grammar: InputGrammar | None = None


class CustomToolDefinition(Struct):
    """A tool whose input is any text."""

    name: str
    description: str | None = None
    format: InputFormat | None = None


class ToolDefinition(Struct):
    type: Literal["function", "custom"]
    # One of the two, by the type.
    function: FunctionDefinition | None = None
    custom: CustomToolDefinition | None = None


class NamedFunction(Struct):
    """One of the functions in `tools`."""

    name: str


class ForcedTool(Struct, tag_field="type", tag="function"):
    """A function, such as the one that the model has to call."""

    function: NamedFunction


class ForcedCustomTool(Struct, tag_field="type", tag="custom"):
    """A custom tool, such as the one that the model has to call."""

    custom: NamedFunction


class AllowedTools(Struct):
    """The functions that the model may call now, of all that are in `tools`."""

    tools: Annotated[list[ForcedTool | ForcedCustomTool], Meta(min_length=1)]
    mode: Literal["auto", "required"] = "auto"


class AllowedToolsChoice(Struct, tag_field="type", tag="allowed_tools"):
    """A choice among some of the tools."""

    allowed_tools: AllowedTools


class JsonSchema(Struct):
    """The schema that an answer follows."""

    name: str | None = None
    description: str | None = None
    schema: UnreadObject | None = None
    strict: bool | None = None


class ResponseFormatField(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Struct):
    """The form of a stream, which always ends with its usage."""

    include_usage: bool | None = None
    # Whether random characters hide the sizes of its pieces.
    include_obfuscation: bool | None = None


class ModerationRule(Struct):
    """The treatment of a flagged text; only `block` is looked at."""

    mode: str | None = None


class ModerationPolicy(Struct):
    """The rules for prompts and answers."""

    input: ModerationRule | None = None
    output: ModerationRule | None = None


class Moderation(Struct):
    """OpenAI's moderation beside an answer."""

    policy: ModerationPolicy | None = None


IF_TAKEN: Final = "Where the model takes it; otherwise `x-legato-ignored` names it."

_Penalty = Annotated[float, Meta(ge=-2, le=2)]
# What models take differs, and grows.
_Word = Annotated[str, Meta(pattern="^[a-z]{1,16}$", description=IF_TAKEN)]


class Reasoning(Struct):
    """The amount of thinking in OpenRouter's words, an effort or a number of tokens, and whether it is told."""

    effort: _Word | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    enabled: bool | None = None
    # To say how much it is to think is to ask to be told what, unless this is true.
    exclude: bool | None = None
    summary: str | None = None


class ForwardedFields(Struct):
    """The parameters that models get as they are."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    seed: int | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    reasoning_effort: _Word | None = None
    verbosity: _Word | None = None
    top_k: Annotated[int, Meta(ge=-1, description=IF_TAKEN)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1, description=IF_TAKEN)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2, description=IF_TAKEN)] | None = None


class Body(ForwardedFields):
    """The fields we know; all others are not passed on, and named to the client. Null is the same as absent."""

    messages: Raw = ABSENT
    model: str | None = None
    stream: bool | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    reasoning: Reasoning | None = None
    include_reasoning: bool | None = None
    logit_bias: Raw = ABSENT
    chat_template_kwargs: Raw = ABSENT
    response_format: Raw = ABSENT
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT
    parallel_tool_calls: bool | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: Raw = ABSENT
    functions: Raw = ABSENT
    function_call: Raw = ABSENT
    modalities: Raw = ABSENT
    audio: Raw = ABSENT
    prediction: Raw = ABSENT
    web_search_options: Raw = ABSENT
    store: Raw = ABSENT
    service_tier: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    prompt_cache_retention: Raw = ABSENT
    safety_identifier: Raw = ABSENT
    moderation: Raw = ABSENT


class BodyOfKnownFields(Body, forbid_unknown_fields=True):
    """The same, without any other field, as nearly all bodies are."""

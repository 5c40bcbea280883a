"""The fields of a request to `/v1/messages`, as they are validated.

Texts, inputs and schemas are kept as bytes: they become parts of the chat's JSON as they are.
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from edge.wire.request_fields import ABSENT


class Thinking(Struct):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Struct):
    type: Literal["json_schema"]
    # A JSON schema.
    schema: Raw = ABSENT


class OutputConfig(Struct):
    effort: Annotated[str, Meta(pattern="^[a-z]{1,16}$")] | None = None
    format: OutputFormat | None = None


class ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(Struct):
    user_id: str | None = None


class KeptTurns(Struct, tag_field="type", tag="thinking_turns"):
    value: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class AllTurns(Struct, tag_field="type", tag="all"):
    pass


class Edit(Struct):
    type: str
    # Of the edit that clears thoughts.
    keep: KeptTurns | AllTurns | Literal["all"] | None = None


class ContextManagement(Struct):
    edits: list[Edit] = []


class MessagesBody(Struct):
    """The fields we know; all others are named to the client. Null is the same as absent."""

    messages: Raw = ABSENT
    system: Raw = ABSENT
    tools: Raw = ABSENT
    tool_choice: ToolChoice | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=4)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    # The same as `output_config.format`, in older requests.
    output_format: OutputFormat | None = None
    context_management: ContextManagement | None = None
    # The same as in chat completions, where they are validated.
    model: Raw = ABSENT
    max_tokens: Raw = ABSENT
    stream: Raw = ABSENT
    temperature: Raw = ABSENT
    top_p: Raw = ABSENT
    top_k: Raw = ABSENT
    # Accepted and not used: prompts are marked for caches anyway.
    cache_control: Raw = ABSENT
    metadata: Metadata | None = None
    service_tier: Raw = ABSENT
    # Refused, since an answer without them would be another.
    compaction: Raw = ABSENT
    container: Raw = ABSENT
    inference_geo: Raw = ABSENT
    mcp_servers: Raw = ABSENT
    thread: Raw = ABSENT


class MessagesBodyOfKnownFields(MessagesBody, forbid_unknown_fields=True):
    """The same, without any other field."""


class Message(Struct, gc=False):
    role: Literal["user", "assistant", "system"]
    # A text, or a list of blocks.
    content: Raw


class MessageBlock(Struct, gc=False):
    """A block of any type; each has some of these fields."""

    type: str
    text: Raw = ABSENT
    # Of a call, and of its result.
    id: str = ""
    name: str = ""
    input: Raw = ABSENT
    tool_use_id: str = ""
    content: Raw = ABSENT
    is_error: bool | None = None
    # Of thoughts, by which they are known; and of those that have no text.
    signature: str | None = None
    data: str | None = None
    thinking: Raw = ABSENT
    cache_control: Raw = ABSENT


class GivenTool(Struct):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = ABSENT
    strict: bool | None = None
    cache_control: Raw = ABSENT
    # Refused: models get all tools at once.
    defer_loading: bool | None = None
    # Named to the client if it is set.
    input_examples: Raw = ABSENT

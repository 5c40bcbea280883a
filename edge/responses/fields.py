"""The fields of a request for a response, as they are validated; `edge/api/response_schema.py` describes them."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from edge.wire.request_fields import ABSENT

_Word = Annotated[str, Meta(pattern="^[a-z]{1,16}$")]


class TextOptions(Struct):
    """The form of the answer's text."""

    format: Raw = ABSENT
    verbosity: _Word | None = None


class ReasoningOptions(Struct):
    """The way in which a model thinks, and what it tells of that."""

    effort: _Word | None = None
    summary: _Word | None = None
    context: str | None = None
    mode: str | None = None


class ResponseBody(Struct):
    """The fields we know; all others are not passed on, and named to the client. Null is the same as absent."""

    input: Raw = ABSENT
    instructions: Raw = ABSENT
    model: str | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    top_logprobs: int | None = None
    max_tool_calls: int | None = None
    stream_options: Raw = ABSENT
    store: bool | None = None
    background: Raw = ABSENT
    previous_response_id: Raw = ABSENT
    conversation: Raw = ABSENT
    prompt: Raw = ABSENT
    context_management: Raw = ABSENT
    user: str | None = None
    client_metadata: Raw = ABSENT
    service_tier: Raw = ABSENT
    safety_identifier: Raw = ABSENT
    prompt_cache_retention: Raw = ABSENT
    prompt_cache_options: Raw = ABSENT


class ResponseBodyOfKnownFields(ResponseBody, forbid_unknown_fields=True):
    """The same, without any other field, as nearly all bodies are."""

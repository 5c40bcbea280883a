"""Renders what Anthropic's messages are made of, whether they are streamed or whole."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage

# The signature of a thought that no model needs back.
NOT_SEALED: Final = "none"

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class MessageForm(NamedTuple):
    """The parts of an answer's form that its request chooses."""

    # The edits that were applied to the context, of a client that asks for some.
    applied_edits: Sequence[Mapping[str, object]] | None = None
    # Blocks of thoughts have no texts.
    omits_thinking: bool = False
    # Those of the request, of which one may end the answer.
    stop_sequences: tuple[str, ...] = ()


def message_object(message_id: str, class_id: str, content: list[object]) -> dict[str, object]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": class_id,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def stop_fields(finish_reason: str, sequence: str | None, form: MessageForm, *, is_refused: bool) -> dict[str, object]:
    """Builds the fields that tell why the answer ended. `sequence` is the stop that a provider has met."""
    if is_refused or finish_reason != "stop" or sequence not in form.stop_sequences:
        reason = "refusal" if is_refused else _STOP_REASONS.get(finish_reason, "end_turn")
        return {"stop_reason": reason, "stop_sequence": None}
    return {"stop_reason": "stop_sequence", "stop_sequence": sequence}


def usage_object(usage: Usage, cut_by: str = "") -> dict[str, object]:
    """Builds the usage of an answer. Its counts of input are parts: what was neither read from a cache nor written to
    one comes first."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        **({"x-legato-end": cut_by} if cut_by else {}),
    }


def thinking_block(text: str, sealed: str) -> dict[str, object]:
    """Builds a block of thoughts, with the seal by which the next turn has them."""
    return {"type": "thinking", "thinking": text, "signature": sealed}


def redacted_block(sealed: str) -> dict[str, object]:
    """Builds a block of thoughts that have no text."""
    return {"type": "redacted_thinking", "data": sealed}


def citation_object(citation: router.Citation) -> dict[str, object]:
    """Renders a citation of a page, for documents too. What was cited is not sent again, and needs not be."""
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": "",
        "encrypted_index": "",
    }

"""Renders the JSON object of a response, around its items."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from legato_protos.type.v1.usage_pb2 import Usage

# The prefix of a response's id, before the id of its request.
RESPONSE_PREFIX: Final = "resp_"
# Why an answer is incomplete, by its finish_reason; others are complete.
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class ResponseObject:
    """The common part of all objects of one response. Input, instructions and tools are not told again."""

    request_id: str
    created_s: int
    class_id: str
    settings: dict[str, object]
    now_s: Callable[[], float]

    def render(self, status: str, output: object = (), **fields: object) -> dict[str, object]:
        return {
            "id": f"{RESPONSE_PREFIX}{self.request_id}",
            "object": "response",
            "created_at": self.created_s,
            "status": status,
            "background": False,
            "completed_at": int(self.now_s()) if status == "completed" else None,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "model": self.class_id,
            "output": output,
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "tools": [],
            "truncation": "disabled",
            "usage": None,
            **self.settings,
            **fields,
        }

    def render_end(self, output: object, finish_reason: str, usage: Usage, cut_by: str) -> dict[str, object]:
        told_usage = response_usage(usage, cut_by)
        reason = _INCOMPLETE.get(finish_reason)
        details = None if reason is None else {"reason": reason}
        return self.render(end_status(finish_reason), output, usage=told_usage, incomplete_details=details)


def end_status(finish_reason: str) -> str:
    return "incomplete" if finish_reason in _INCOMPLETE else "completed"


def response_usage(usage: Usage, cut_by: str) -> dict[str, object]:
    """Builds the usage of an answer; `cut_by` says what ended one whose credit was used up."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({"x-legato-end": cut_by} if cut_by else {}),
    }

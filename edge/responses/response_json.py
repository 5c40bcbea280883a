"""Renders the JSON object of a response, around its items."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec import Raw

from edge.responses.fields import ReasoningOptions, ResponseBody, TextOptions
from edge.wire.answer_ids import RESPONSE_PREFIX
from edge.wire.checked_json import present
from legato_protos.type.v1.usage_pb2 import Usage

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
        told = response_usage(usage, cut_by)
        reason = _INCOMPLETE.get(finish_reason)
        details = None if reason is None else {"reason": reason}
        return self.render(end_status(finish_reason), output, usage=told, incomplete_details=details)


def end_status(finish_reason: str) -> str:
    return "incomplete" if finish_reason in _INCOMPLETE else "completed"


def response_usage(usage: Usage, cut_by: str) -> dict[str, object]:
    """Builds the usage of an answer; `cut_by` says what ended one whose credit was used up."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({"x-legato-end": cut_by} if cut_by else {}),
    }


def settings_of(body: ResponseBody) -> dict[str, object]:
    """Returns the settings of a request that its response has, too. Those that it does not have are told as OpenAI
    does, since some clients need them all."""
    reasoning, text = body.reasoning or ReasoningOptions(), body.text or TextOptions()
    verbosity = {"verbosity": text.verbosity} if text.verbosity else {}
    choice, cache_key = present(body.tool_choice), present(body.prompt_cache_key)
    return {
        "frequency_penalty": 0.0,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": Raw(present(body.metadata) or b"{}"),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "presence_penalty": 0.0,
        "prompt_cache_key": Raw(cache_key) if cache_key.startswith(b'"') else None,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "safety_identifier": None,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": Raw(present(text.format) or b'{"type":"text"}'), **verbosity},
        "tool_choice": Raw(choice or b'"auto"'),
        "top_logprobs": 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
    }

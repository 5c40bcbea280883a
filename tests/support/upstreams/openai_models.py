"""OpenAI's own models, which refuse what their vendor's do, in the words that users quote.

The words are those of earendil-works, BerriAI and vane users' threads: an unsupported parameter, an unsupported value
with the supported ones, and function tools beside reasoning.
"""

from typing import Any, Final

import msgspec

from tests.support.upstreams.openai import Recorded, Reply, Upstream

_ALL: Final = ("none", "low", "medium", "high", "xhigh", "max")
# By the name of a model: the efforts that it takes, and the one that it uses if it is told none.
EFFORTS: Final = {
    "gpt-4o": ((), ""),
    "gpt-5-mini": (("minimal", "low", "medium", "high"), "medium"),
    "gpt-5.1": (("none", "low", "medium", "high"), "none"),
    "gpt-5.6-luna": (_ALL, "medium"),
    "gpt-6-sol": (_ALL, "medium"),
    "gpt-6.1-sol": (_ALL[1:], "medium"),
    # A deployment whose name tells nothing.
    "our-deployment": (_ALL, "medium"),
}


def refusal(message: str, param: str | None, code: str | None, status: int = 400) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(status=status, body=msgspec.json.encode({"error": error}).decode())


class OpenAIModels(Upstream):
    def refusal_of(self, recorded: Recorded) -> Reply | None:
        return chat_refusal_of(recorded.json)


def chat_refusal_of(request: dict[str, Any]) -> Reply | None:
    """Returns what a model refuses over chat completions."""
    efforts, usual = EFFORTS.get(request["model"], EFFORTS["our-deployment"])
    return _refusal(request, request["model"], efforts, usual) if efforts else None


def _refusal(request: dict[str, Any], model: str, efforts: tuple[str, ...], usual: str) -> Reply | None:
    if "max_tokens" in request:
        return refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model."
            " Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    effort = request.get("reasoning_effort", usual)
    if effort not in efforts:
        *others, last = (f"'{each}'" for each in efforts)
        return refusal(
            f"Unsupported value: '{effort}' is not supported with the '{model}' model."
            f" Supported values are: {', '.join(others)}, and {last}.",
            "reasoning_effort",
            "unsupported_value",
        )
    if request.get("tools") and effort != "none":
        return refusal(
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions."
            " To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            "reasoning_effort",
            None,
        )
    if request.get("temperature", 1) != 1 and effort != "none":
        return refusal(
            f"Unsupported value: 'temperature' does not support {request['temperature']} with this model."
            " Only the default (1) value is supported.",
            "temperature",
            "unsupported_value",
        )
    return None

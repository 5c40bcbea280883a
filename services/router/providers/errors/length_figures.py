"""Extracts the token figures from a provider's error about a prompt that is too long.

Each provider has its own wording; the words beside a number show what it is. A message may quote the client, so a
figure may be wrong and callers must tolerate that.
"""

import re
from typing import Final

import msgspec

from services.router.prompts.fitting import Figures
from services.router.providers.base import UNREADABLE, as_count

# The figures are near the beginning.
MOST_CHARACTERS: Final = 1000

# Some write 1,048,576.
_NUMBER = r"([0-9](?:[0-9,]{0,11}[0-9])?)"


def _any_of(*forms: str) -> re.Pattern[str]:
    return re.compile("|".join(form.replace("N", _NUMBER) for form in forms))


_CONTEXT = _any_of(
    # OpenAI, DeepSeek, Azure, vLLM, SGLang, OpenRouter, Fireworks.
    r"context length(?: is| of|:)?(?: only)? \(?N",
    r"maximum model length of N",
    # TGI.
    r"must be <= N",
    # Anthropic, for the prompt alone and with the answer; Mistral.
    r"> N maximum",
    r"context limit: [0-9,]{1,12} \+ [0-9,]{1,12} > N",
    r"model with N maximum",
    # llama.cpp, Gemini, xAI.
    r"context size \(N",
    r"tokens allowed \(N",
    r"supports up to N",
    r"maximum prompt length is N",
)
_PROMPT = _any_of(
    r"N input tokens",
    r"messages resulted in N tokens",
    r"N tokens from the input",
    r"N `inputs` tokens",
    r"prompt \(length N\)",
    r"input \(N tokens\)",
    r"input token count (?:is |\()N",
    r"prompt is too long: N",
    r"context limit: N \+",
    r"request \(N tokens\)",
    r"(?:prompt|request) contains N tokens",
)
_TOTAL = _any_of(r"requested (?:about |a total of )?N tokens")


class _Counts(msgspec.Struct, gc=False):
    """llama.cpp's counts, in fields beside its message."""

    n_ctx: int | None = None
    n_prompt_tokens: int | None = None


class _Body(_Counts, gc=False):
    """An error body; in a stream the counts are at the top level."""

    error: _Counts | None = None


_bodies = msgspec.json.Decoder(_Body)


def read_figures(message: str, body: bytes) -> Figures:
    """Reads the figures from `message`, in lower case, and from `body`, which contains it."""
    start = message[:MOST_CHARACTERS]
    try:
        decoded = _bodies.decode(body)
        counts = decoded.error or decoded
    except UNREADABLE:
        counts = _Counts()
    return Figures(
        as_count(counts.n_ctx) or _first(_CONTEXT, start),
        as_count(counts.n_prompt_tokens) or _first(_PROMPT, start),
        _first(_TOTAL, start),
    )


def _first(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    digits = next((group for group in found.groups() if group), "") if found else ""
    return as_count(int(digits.replace(",", ""))) if digits else None

"""The models that are known to go on with the beginning of an answer, and how their servers are told.

What is not listed may begin a new answer in the middle of the old one, so this is a list of what works, not of what
does not. docs/routes.md names the documents that it is from.
"""

import re
from typing import Any, Final, NamedTuple

import msgspec

from services.router.prompts.answer_prefix import PrefixStyle
from services.router.providers.abilities import Abilities
from services.router.providers.base import ProviderRoute, as_object
from services.router.providers.translation.model_names import plain_name


class _Known(NamedTuple):
    kind: str
    style: PrefixStyle
    # A pattern of the last part of a model's name.
    models: str = ""
    # A pattern of the address without its scheme; empty: any server of this kind.
    address: str = ""
    # Whether these models think before they answer, unless the provider's `body` turns it off.
    thinks: bool = False


_DASHSCOPE: Final = r"dashscope(-[a-z]+)?\.aliyuncs\.com/"
_MOONSHOT: Final = r"api\.moonshot\.(ai|cn)/"
_KNOWN: Final = (
    _Known("local", PrefixStyle.LAST_MESSAGE),
    # Those from 4.6 on refuse it, which their abilities say.
    _Known("anthropic", PrefixStyle.LAST_MESSAGE, r"claude-([23]|[a-z]+-4)"),
    _Known("openai", PrefixStyle.PREFIX, r"deepseek-v4-", r"api\.deepseek\.com/beta/?$", thinks=True),
    _Known(
        "openai",
        PrefixStyle.REPEATED_PREFIX,
        r"(mistral|ministral|codestral|devstral|pixtral|open-mi[sx]tral)-",
        r"api\.mistral\.ai/",
    ),
    _Known("openai", PrefixStyle.PARTIAL, r"moonshot-v1-", _MOONSHOT),
    _Known("openai", PrefixStyle.PARTIAL, r"kimi-k2\.[56]$", _MOONSHOT, thinks=True),
    _Known(
        "openai",
        PrefixStyle.PARTIAL,
        r"qwen-(max|plus|flash|turbo|coder)|qwen2\.5-(\d|coder|math)|qwen3-(max|coder|[\w.-]+-instruct)",
        _DASHSCOPE,
    ),
    _Known("openai", PrefixStyle.PARTIAL, r"qwen3\.[5-7]-(max|plus|flash)", _DASHSCOPE, thinks=True),
    _Known("openai", PrefixStyle.LAST_MESSAGE, r"llama-?[34]", r"api\.groq\.com/"),
)


def known_style(route: ProviderRoute, model_name: str, abilities: Abilities) -> PrefixStyle | None:
    """Returns how a model is told to go on with an answer; None if it is not known to, or thinks first."""
    if not abilities.prefill:
        return None
    name, address = plain_name(model_name), route.base_url.partition("://")[2].lower()
    for known in _KNOWN:
        if route.kind == known.kind and re.match(known.models, name) and re.match(known.address, address):
            thinks = _thinks(as_object(msgspec.json.decode(route.extra_json)))
            thinks_by_default = known.thinks or abilities.thinks != "on_request"
            return None if (thinks_by_default if thinks is None else thinks) else known.style
    return None


def _thinks(body: dict[str, Any]) -> bool | None:
    """Returns whether the fields that a provider adds to each request turn thinking on or off; None if neither."""
    if kind := as_object(body.get("thinking")).get("type"):
        return bool(kind != "disabled")
    if "enable_thinking" in body:
        return body["enable_thinking"] is not False
    if "reasoning_effort" in body:
        return bool(body["reasoning_effort"] != "none")
    return True if "reasoning" in body else None

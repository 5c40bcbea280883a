"""How servers that speak OpenAI's language are told to keep nothing of a request."""

from typing import Any, Final
from urllib.parse import urlsplit

# OpenAI's own field. Others pass over it, or know it too.
_STORE_FALSE: Final = {"store": False}

# Hosts with another way to say it, and hosts with none, of which some refuse fields that they do not know.
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "openrouter.ai": {"provider": {"zdr": True, "data_collection": "deny"}},
    "api.deepseek.com": {},
    "api.groq.com": {},
    "api.mistral.ai": {},
    "api.together.ai": {},
    "api.together.xyz": {},
}


def no_store_fields(base_url: str) -> dict[str, Any]:
    """What goes along with every request."""
    return _WAYS.get(urlsplit(base_url).hostname or "", _STORE_FALSE)

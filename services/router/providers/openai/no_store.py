"""Request fields that tell OpenAI-compatible servers not to store a request."""

from typing import Any, Final
from urllib.parse import urlsplit

# OpenAI's own field. Others support or ignore it.
_STORE_FALSE: Final = {"store": False}

# Hosts with other fields, and hosts with none, some of which reject unknown fields.
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "openrouter.ai": {"provider": {"zdr": True, "data_collection": "deny"}},
    "api.deepseek.com": {},
    "api.groq.com": {},
    "api.mistral.ai": {},
    "api.together.ai": {},
    "api.together.xyz": {},
}


def no_store_fields(base_url: str) -> dict[str, Any]:
    """Returns the fields to add to every request."""
    return _WAYS.get(urlsplit(base_url).hostname or "", _STORE_FALSE)

"""Models that search, and models that answer."""

from typing import Any

import pytest

from services.router.grounding.search_tool import NAME
from tests.services.router.grounding.harness import ACCOUNT
from tests.services.router.harness import as_json
from tests.support.upstreams.openai import Reply

MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SWITCHES: dict[str, Any] = {"account_id": ACCOUNT, "search": True}


def searching(*queries: str, said: str = "", **fields: Any) -> Reply:
    """A model that calls the function; in a stream its arguments come in two pieces."""
    calls, pieces = [], []
    for index, query in enumerate(queries):
        arguments = as_json({"query": query}).decode()
        call = {"index": index, "id": f"call_{index}", "type": "function"}
        calls.append({**call, "function": {"name": NAME, "arguments": arguments}})
        pieces.append({**call, "function": {"name": NAME, "arguments": arguments[:5]}})
        pieces.append({"index": index, "function": {"arguments": arguments[5:]}})
    return Reply(
        contents=[said] if said else [],
        tool_calls=pieces,
        message_tool_calls=calls,
        finish_reason="tool_calls",
        **{"usage": {"prompt_tokens": 100, "completion_tokens": 20}, **fields},
    )


def answering(*contents: str, **fields: Any) -> Reply:
    return Reply(contents=list(contents), **{"usage": {"prompt_tokens": 300, "completion_tokens": 7}, **fields})

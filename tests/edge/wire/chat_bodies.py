"""Bodies of chats, decoded or refused."""

import asyncio
import json
from typing import Any

import pytest

from edge.wire import chat_request
from edge.wire.chat_request import ChatBody
from services.chassis.errors import LegatoError, Reason

USER = {"role": "user", "content": "Hello"}


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def decode_chat(body: bytes) -> ChatBody:
    return asyncio.run(chat_request.decode_chat(body))


def decode(**fields: Any) -> ChatBody:
    return decode_chat(json.dumps({"messages": [USER], **fields}).encode())


def refusal(body: bytes) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        decode_chat(body)
    assert refused.value.reason is Reason.REQUEST_INVALID
    return refused.value


def refusal_of(**fields: Any) -> LegatoError:
    return refusal(json.dumps({"messages": [USER], **fields}).encode())

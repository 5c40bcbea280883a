"""Clients of ChatService: `LegatoClient` for programs with threads, `AsyncLegatoClient` for those with asyncio."""

from legato_protos.client.async_client import AsyncChatStream, AsyncLegatoClient
from legato_protos.client.channel import Certificates
from legato_protos.client.chat_request import (
    ChatOptions,
    assistant,
    custom_tool,
    function,
    json_schema,
    system,
    tool_result,
    user,
)
from legato_protos.client.client import ChatStream, LegatoClient
from legato_protos.client.errors import (
    AuthenticationError,
    DeadlineError,
    InvalidRequestError,
    LegatoError,
    LimitError,
    NotFoundError,
    OutOfCreditError,
    PermissionDeniedError,
    Reason,
    RepeatedRequestError,
    UnavailableError,
)

__all__ = [
    "AsyncChatStream",
    "AsyncLegatoClient",
    "AuthenticationError",
    "Certificates",
    "ChatOptions",
    "ChatStream",
    "DeadlineError",
    "InvalidRequestError",
    "LegatoClient",
    "LegatoError",
    "LimitError",
    "NotFoundError",
    "OutOfCreditError",
    "PermissionDeniedError",
    "Reason",
    "RepeatedRequestError",
    "UnavailableError",
    "assistant",
    "custom_tool",
    "function",
    "json_schema",
    "system",
    "tool_result",
    "user",
]

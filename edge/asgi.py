"""The names of ASGI's parts."""

from collections.abc import Awaitable, Callable
from typing import Any

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

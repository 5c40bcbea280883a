"""The names of ASGI's parts."""

from collections.abc import Awaitable, Callable
from typing import Any

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Takes what is to be called when a client has left before its answer was complete.
WhenGone = Callable[[Callable[[], None]], None]

"""Types and scope keys of ASGI."""

from collections.abc import Awaitable, Callable
from typing import Any

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Registers a callback for a client that disconnects before its answer is complete.
WhenGone = Callable[[Callable[[], None]], None]

# Scope key of the request's body, if it arrived together with the headers.
BODY = "legato.body"
# Scope key of the WhenGone function, which registers a callback for a disconnect.
WHEN_GONE = "legato.when_gone"

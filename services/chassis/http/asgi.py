"""The types of ASGI that applications and connections share, and the keys that we add to its scope."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

HttpScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Registers a callback for a client that disconnects before its answer is complete.
WhenGone = Callable[[Callable[[], None]], None]

# Scope key of the request's body, if that came together with its headers, so that it need not be waited for.
BODY = "legato.body"
# Scope key of the WhenGone function, which registers a callback for a disconnect.
WHEN_GONE = "legato.when_gone"
# Scope key of the response's `ResponseWriter`, for pieces of a body that has begun.
BODY_WRITER = "legato.body_writer"

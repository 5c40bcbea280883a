"""The names of ASGI's parts."""

from collections.abc import Awaitable, Callable
from typing import Any

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Takes what is to be called when a client has left before its answer was complete.
WhenGone = Callable[[Callable[[], None]], None]

# In the scope of a request: its body, where that came together with its headers, so that nobody needs to wait for it.
BODY = "legato.body"
# And how to be told that the client has left before the answer was complete: a function that takes what to call then.
WHEN_GONE = "legato.when_gone"

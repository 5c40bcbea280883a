"""The types of ASGI that applications and connections share, and the keys that we add to its scope."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

HttpScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Registers a callback for a client that disconnects before its answer is complete.
WhenGone = Callable[[Callable[[], None]], None]


class WriteFlow(Protocol):
    @property
    def write_paused(self) -> bool:
        """True while the client does not keep up."""
        ...


class BodyWriter(Protocol):
    """Writes pieces of the body of a response that has begun, without waiting."""

    @property
    def flow(self) -> WriteFlow: ...

    def write(self, body: bytes) -> None: ...

    async def drain(self) -> None:
        """Waits until the client has caught up."""
        ...


# Scope key of the request's body, if that came together with its headers, so that it need not be waited for.
BODY = "legato.body"
# Scope key of the WhenGone function, which registers a callback for a disconnect.
WHEN_GONE = "legato.when_gone"
# Scope key of the response's BodyWriter.
BODY_WRITER = "legato.body_writer"

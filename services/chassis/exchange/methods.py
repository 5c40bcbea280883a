"""What a service offers, and how its handlers see a call."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
RequestT_co = TypeVar("RequestT_co", bound=Message, covariant=True)
ResponseT_contra = TypeVar("ResponseT_contra", bound=Message, contravariant=True)


class CallStream(Protocol[RequestT_co, ResponseT_contra]):
    """One call as its handler sees it, whichever way it came. When the caller leaves, the handler is cancelled."""

    async def receive(self) -> RequestT_co:
        """The first request, then later ones. A caller who has nothing more to say is waited for until it leaves."""
        ...

    async def send(self, response: ResponseT_contra) -> None:
        """Waits while the caller is too far behind."""
        ...


@dataclass(frozen=True, slots=True)
class UnaryMethod(Generic[RequestT, ResponseT]):
    """A question and its answer. Whoever asks may leave; the answer is worked out all the same."""

    request_type: type[RequestT]
    answer: Callable[[RequestT], Awaitable[ResponseT]]


@dataclass(frozen=True, slots=True)
class StreamMethod(Generic[RequestT, ResponseT]):
    request_type: type[RequestT]
    serve: Callable[[CallStream[RequestT, ResponseT]], Awaitable[None]]


Methods = Mapping[str, UnaryMethod[Any, Any] | StreamMethod[Any, Any]]

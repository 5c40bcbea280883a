"""A chat in a dialect whose body is converted into that of chat completions, which the rest of the edge validates."""

from typing import Protocol

from edge.access.principals import Principals
from edge.backends.auth import Principal
from edge.http.http_chat import HttpChat
from edge.http.replies import AnswerEvents, StreamedHttpReply
from edge.wire.body_reader import check_size
from services.chassis.load.fair_budget import BudgetShare


class ConvertedChat(HttpChat):
    _principal: Principal

    async def identify(self, principals: Principals) -> Principal:
        self._principal = await super().identify(principals)
        return self._principal

    async def read(self, memory: BudgetShare) -> bytes:
        body = await self.convert(await super().read(memory), may_search=self._principal.search)
        check_size(len(body))
        memory.grow_to(len(body))
        return body

    async def convert(self, body: bytes, *, may_search: bool) -> bytes:
        """Returns the body of a chat. `may_search`: the account lets its chats without tools search the web."""
        raise NotImplementedError


class UnpackingEvents(AnswerEvents, Protocol):
    def packed(self, packed: bytes) -> bytes:
        """Renders a packed piece, which is not the first."""
        ...


class ConvertedStream(StreamedHttpReply):
    """The answer to such a chat as events."""

    _events: UnpackingEvents

    def write_packed(self, packed: bytes) -> None:
        if self.is_padded:
            super().write_packed(packed)
            return
        self._writer.write(self._events.packed(packed))

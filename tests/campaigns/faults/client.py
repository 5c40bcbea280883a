"""The client and the provider of the campaign."""

import asyncio
import re

from tests.campaigns.faults.chat import Chat
from tests.support.upstreams.openai import Recorded, Reply, Upstream

CHAT_PATH = "/v1/chat/completions"


async def converse(chat: Chat, address: tuple[str, int], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await _converse(chat, address)
    except TimeoutError:
        chat.received.hung = True
    except OSError as error:
        chat.received.error = type(error).__name__
    finally:
        chat.received.is_over = True


async def _converse(chat: Chat, address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(_request(chat))
        reading = asyncio.ensure_future(_read(chat, reader))
        if chat.part.leaves_after is not None:
            leaving = asyncio.ensure_future(_leave(chat))
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not reading.done():
                chat.received.left = True
                reading.cancel()
                return
        await reading
    finally:
        writer.transport.abort()


async def _read(chat: Chat, reader: asyncio.StreamReader) -> None:
    while piece := await reader.read(65536):
        chat.received.raw += piece
        chat.tell_move()


async def _leave(chat: Chat) -> None:
    while not chat.wants_to_leave:
        await asyncio.sleep(0.002)


def _request(chat: Chat) -> bytes:
    body = chat.body
    name = f"Idempotency-Key: {chat.idempotency_key}\r\n" if chat.idempotency_key else ""
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nHost: faults\r\nAuthorization: Bearer {chat.customer.api_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{name}Connection: close\r\n\r\n"
    )
    return head.encode() + body


TAG = re.compile(rb"chat-[0-9a-f]+")


class Provider(Upstream):
    def __init__(self) -> None:
        super().__init__()
        self._chats: dict[bytes, Chat] = {}

    def expect(self, chats: list[Chat]) -> None:
        """Those of a new round; whatever is still asked by others is refused."""
        self._chats = {chat.tag.encode(): chat for chat in chats}
        self.requests.clear()

    def expect_too(self, chat: Chat) -> None:
        self._chats[chat.tag.encode()] = chat

    def reply_to(self, recorded: Recorded) -> Reply:
        chat = self._chat_of(recorded)
        if chat is None:
            return Reply(status=404)
        chat.asked.append(recorded)
        chat.tell_move()
        return chat.reply()

    async def before_write(self, recorded: Recorded) -> None:
        chat = self._chat_of(recorded)
        while chat is not None and not chat.may_write(recorded):
            await chat.moved()
        if chat is not None:
            chat.note_write(recorded)

    def _chat_of(self, recorded: Recorded) -> Chat | None:
        tag = TAG.search(recorded.body)
        return self._chats.get(tag[0]) if tag else None

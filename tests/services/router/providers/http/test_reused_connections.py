"""Many chats share few connections, and end in every way: none of them may get a word of another."""

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from services.chassis.packed_pieces import unpack_piece
from services.router.compiled import RunningCount, pack_read
from services.router.prompts import tokens
from services.router.providers.base import Piece, Provider, ProviderError
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import make_call, opened
from tests.services.router.providers.http.relayed_chat import DONE, HEAD, chunk, framed
from tests.support.servers.byte_server import listening, read_request

CHATS, AT_ONCE = 480, 12
WORDS_MOST = 25
WHOLE = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
PAUSES_S = (0, 0, 0, 0.002, 0.015)
ENDINGS = ("done",) * 5 + ("error", "no event", "not done", "whole", "refused", "cut", "after done", "not chunked")


def words_of(chat: int) -> list[str]:
    """The words of a chat's answer, which no other has."""
    return [f"<{chat}.{number}>" for number in range(WORDS_MOST)]


def answer_of(chat: int, dice: random.Random) -> Iterator[bytes]:
    """Yields what a server writes: some words of the chat, ended in some way."""
    words, ending = words_of(chat)[: dice.randrange(WORDS_MOST)], dice.choice(ENDINGS)
    if ending in ("whole", "refused"):
        message = {"choices": [{"message": {"content": "".join(words)}, "finish_reason": "stop"}]}
        body = msgspec.json.encode(message if ending == "whole" else {"error": {"message": "no"}})
        yield WHOLE % (200 if ending == "whole" else dice.choice((400, 429, 500)), len(body), body)
        return
    events = [*map(chunk, words), b"" if ending == "not done" else DONE]
    wrong = {"error": b'data: {"error":{"code":500}}\n\n', "no event": b'data: {"nope\n\n', "after done": b": bye\n\n"}
    if ending in wrong:
        events.insert(len(events) if ending == "after done" else dice.randrange(len(events)), wrong[ending])
    bodies = []
    while events:
        together = dice.choice((1, 1, 1, 2, 3))
        bodies.append(b"".join(events[:together]))
        del events[:together]
    if ending == "not chunked":
        yield HEAD % (b"Content-Length: %d\r\n" % sum(map(len, bodies)))
        yield from bodies
        return
    writes = [HEAD % b"Transfer-Encoding: chunked\r\n", *map(framed, filter(None, bodies)), b"0\r\n\r\n"]
    for write in writes[: dice.randrange(1, len(writes)) if ending == "cut" else None]:
        # Sometimes in two reads.
        at = dice.randrange(len(write)) if dice.random() < 0.1 else 0
        yield from filter(None, (write[:at], write[at:]))


class Client:
    """Takes what is offered, mostly, as the relay does."""

    def __init__(self, dice: random.Random) -> None:
        self.text = ""
        self.is_over = False
        # What it was offered after its end. To raise an error there would only have it parsed.
        self.late_offers = 0
        self._dice = dice
        self._count = RunningCount(tokens.counter())

    def take(self, piece: Piece) -> bool:
        self.late_offers += self.is_over
        if piece.last or piece.finish_reason or self._dice.random() < 0.2:
            return False
        self.text += "".join(piece.contents)
        return True

    def take_read(self, read: bytes) -> int:
        self.late_offers += self.is_over
        packed = pack_read(read, self._count, 0, 10**9, 0, 10**9) if self._dice.random() > 0.2 else None
        if packed is None:
            return 0
        self.text += "".join(unpack_piece(packed[0]).contents)
        return packed[2]

    async def chat(self, provider: Provider, chat: int) -> None:
        call = make_call(f"m{chat}", b"[]", max_tokens=9, stream=self._dice.random() < 0.9)
        call.sink = self if self._dice.random() < 0.9 else None
        pieces, left_after = provider.answer(call), self._dice.choice((None, None, None, self._dice.randrange(6)))
        try:
            with suppress(ProviderError):
                async for piece in pieces:
                    self.text += "".join(piece.contents)
                    await asyncio.sleep(self._dice.choice(PAUSES_S))
                    left_after = None if left_after is None else left_after - 1
                    if left_after == 0:
                        break
        finally:
            await pieces.aclose()
            self.is_over = True
            assert "".join(words_of(chat)).startswith(self.text)


async def test_each_of_many_chats_on_few_connections_gets_its_own_words_alone() -> None:
    dice, clients, connections, requests = random.Random(1), list[Client](), 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, requests
        connections += 1
        while found := re.search(rb'"model":\s*"m(\d+)"', await read_request(reader)):
            requests += 1
            written = b""
            for write in answer_of(int(found[1]), dice):
                written += write
                writer.write(write)
                await asyncio.sleep(dice.choice(PAUSES_S))
            if b"chunked" in written and not written.endswith(b"0\r\n\r\n"):
                return

    async def chat_one_after_another(first: int) -> None:
        for number in range(first, CHATS, AT_ONCE):
            clients.append(Client(dice))
            chatting = asyncio.create_task(clients[-1].chat(provider, number))
            if dice.random() < 0.15:
                await asyncio.sleep(0.03 * dice.random())
                chatting.cancel()
            with suppress(asyncio.CancelledError):
                await chatting

    async with listening(serve) as port:
        provider = opened(OpenAIProvider, f"http://127.0.0.1:{port}/v1")
        await asyncio.gather(*map(chat_one_after_another, range(AT_ONCE)))
        await provider.aclose()
    assert requests > 2 * connections
    assert not any(client.late_offers for client in clients)

"""Clients that send a chat again and again at a steady rate, whatever becomes of those before."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.support.waiting import WAIT_TIMEOUT_S

CHAT = {"model": "mezzo", "messages": [{"role": "user", "content": "How is the weather?"}], "stream": True}


@dataclass(eq=False)
class SentChat:
    api_key: str
    sent_at_s: float
    # 0: the connection broke.
    status: int | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.text.endswith("data: [DONE]\n\n")


class SteadyChats:
    """Sends while its block runs, each key in turn, in a thread of its own. At the end of the block each chat has its
    answer."""

    def __init__(self, base_url: str, api_keys: Sequence[str], per_s: float) -> None:
        self._url = f"{base_url}/chat/completions"
        self._api_keys = api_keys
        self._per_s = per_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send_all()), daemon=True)
        self.sent: list[SentChat] = []

    def __enter__(self) -> "SteadyChats":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def failed(self) -> list[SentChat]:
        return [chat for chat in self.sent if chat.status is not None and not chat.is_whole]

    @property
    def waiting(self) -> int:
        return sum(chat.status is None for chat in self.sent)

    def failed_after(self, at_s: float) -> list[SentChat]:
        return [chat for chat in self.failed if chat.sent_at_s > at_s]

    async def _send_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=WAIT_TIMEOUT_S)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session,
            asyncio.TaskGroup() as chats,
        ):
            began_s = time.monotonic()
            while not self._is_over.is_set():
                chat = SentChat(self._api_keys[len(self.sent) % len(self._api_keys)], time.monotonic())
                self.sent.append(chat)
                chats.create_task(self._send(session, chat))
                await asyncio.sleep(began_s + len(self.sent) / self._per_s - time.monotonic())

    async def _send(self, session: aiohttp.ClientSession, chat: SentChat) -> None:
        headers = {"Authorization": f"Bearer {chat.api_key}"}
        try:
            async with session.post(self._url, json=CHAT, headers=headers) as response:
                chat.text = await response.text()
                chat.headers, chat.status = response.headers, response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            chat.text, chat.status = type(error).__name__, 0

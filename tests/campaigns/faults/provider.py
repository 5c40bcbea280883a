"""The provider of a campaign: finds each request's chat by its tag, and answers in step with its client."""

import re

from tests.campaigns.faults.chat import Chat
from tests.support.upstreams.openai import Recorded, Reply, Upstream

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

    def _chat_of(self, recorded: Recorded) -> Chat | None:
        tag = TAG.search(recorded.body)
        return self._chats.get(tag[0]) if tag else None

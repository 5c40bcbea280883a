"""Loops of tool calls through a router, as clients run them that know nothing of reasoning."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.services.router.harness import Answer, Router, as_json
from tests.support.upstreams.thinking import FUNCTION

TOOLS: Final = as_json([{"type": "function", "function": {"name": FUNCTION, "parameters": {"type": "object"}}}])
QUESTION: Final[Mapping[str, Any]] = {"role": "user", "content": "What is the weather?"}
ACCOUNT: Final = "acct_1"
MOST_TURNS: Final = 40


class Conversation:
    """A client that keeps of an answer what OpenAI's format has: text and calls."""

    def __init__(self, router: Router, **fields: Any) -> None:
        self.router = router
        self._fields = {"account_id": ACCOUNT, "tools_json": TOOLS, **fields}
        self.messages: list[dict[str, Any]] = [dict(QUESTION)]

    @property
    def call_ids(self) -> list[str]:
        return [call["id"] for message in self.messages for call in message.get("tool_calls", ())]

    async def ask(self, **fields: Any) -> Answer:
        return await self.router.ask(as_json(self.messages), **{**self._fields, **fields})

    async def step(self, **fields: Any) -> Answer:
        """Asks, and carries out the calls."""
        answer = await self.ask(**fields)
        self.add(answer.text, answer.tool_calls)
        return answer

    def add(self, text: str, calls: Sequence[Mapping[str, Any]]) -> None:
        if not calls:
            self.messages.append({"role": "assistant", "content": text})
            return
        called = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls
        ]
        self.messages.append({"role": "assistant", "content": text or None, "tool_calls": called})
        for call in calls:
            city = json.loads(call["arguments"])["city"]
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"Rain in {city}."})

    async def run(self, **fields: Any) -> str:
        """Carries out calls until there is an answer in text."""
        for _ in range(MOST_TURNS):
            answer = await self.step(**fields)
            if not answer.tool_calls:
                return answer.text
        raise AssertionError("the model does not stop")
